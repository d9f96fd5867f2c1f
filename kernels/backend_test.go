package kernels

import (
	"testing"

	"github.com/specstream/specstream"
	"github.com/stretchr/testify/require"
)

func TestUse(t *testing.T) {
	before := current()
	t.Cleanup(func() { active.Store(before) })
	require.NoError(t, Use("go"))
	require.Equal(t, "go", Backend())
	err := Use("mkl")
	require.True(t, specstream.BadInput(err), "%v", err)
	require.ErrorContains(t, err, `unknown back end "mkl"`)
	require.Equal(t, "go", Backend(), "a refused name changes nothing")
	require.NoError(t, Use("native"))
	require.Equal(t, bestLevel.String(), Backend())
	require.NoError(t, Use("auto"))
	lib, err := loadOpenBLAS()
	if err != nil {
		require.Equal(t, bestLevel.String(), Backend())
		require.True(t, specstream.BadInput(Use("openblas")))
	} else {
		require.Equal(t, "openblas "+lib.version+" ("+lib.path+", "+lib.core+" kernels)", Backend())
	}
	chosen, err := choose("cublas")
	require.True(t, specstream.BadInput(err))
	require.ErrorContains(t, err, EnvBackend)
	require.Equal(t, automatic().name, chosen.name, "a wrong value falls back to the automatic choice")
	chosen, err = choose("go")
	require.NoError(t, err)
	require.Equal(t, "go", chosen.name)
	require.NoError(t, EnvError(), "run the tests with a valid "+EnvBackend)
}
