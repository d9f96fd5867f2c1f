package kernels

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/specstream/specstream"
)

// EnvBackend is the environment variable that chooses the back end of [Gemm]
// at start; it takes the names of [Use].
const EnvBackend = "SPECSTREAM_BLAS"

// backend says how matrix products are computed and which vector kernels run.
type backend struct {
	name  string
	level level
	blas  *blasLibrary // nil: our own kernels
}

var (
	active     atomic.Pointer[backend]
	chooseOnce sync.Once
	envError   error
)

// current returns the active back end, choosing it on first use.
func current() *backend {
	if b := active.Load(); b != nil {
		return b
	}
	chooseOnce.Do(func() {
		var b *backend
		b, envError = choose(os.Getenv(EnvBackend))
		active.CompareAndSwap(nil, b) // unless Use came first
	})
	return active.Load()
}

// choose resolves the value of the environment variable; when it can't be
// honoured the automatic choice comes with the error.
func choose(value string) (*backend, error) {
	b, err := named(value)
	if err != nil {
		return automatic(), fmt.Errorf("environment variable %s: %w", EnvBackend, err)
	}
	return b, nil
}

// activeLevel is the instruction set of the vector kernels.
func activeLevel() level { return current().level }

// automatic prefers OpenBLAS; without one, the widest instruction set.
func automatic() *backend {
	lib, err := loadOpenBLAS()
	if err != nil {
		return nativeBackend(bestLevel)
	}
	return openBLASBackend(lib)
}

func nativeBackend(l level) *backend { return &backend{name: l.String(), level: l} }

func openBLASBackend(lib *blasLibrary) *backend {
	return &backend{name: fmt.Sprintf("openblas %s (%s, %s kernels)", lib.version, lib.path, lib.core), level: bestLevel, blas: lib}
}

// Backend names what [Gemm] uses, for people: "openblas 0.3.21
// (libopenblas.so.0, SkylakeX kernels)", "avx512", "avx2+fma" or "go".
func Backend() string { return current().name }

// EnvError reports why the value of SPECSTREAM_BLAS could not be honoured, in
// which case the automatic choice is active; nil when it was honoured or unset.
func EnvError() error {
	current()
	return envError
}

// Use selects the back end for the whole process, for tests, benchmarks and
// diagnosis; products already running are not affected.
//
//	"auto", ""  OpenBLAS where the system has it, else "native"
//	"openblas"  OpenBLAS; an error when it can't be loaded
//	"native"    our kernels for the widest instruction set of this CPU
//	"avx512", "avx2"  our kernels for that instruction set
//	"go"        portable Go, for the element-wise functions too
//
// It returns a *specstream.InputError for an unknown name or a back end this
// machine lacks, and leaves the active one as it was.
func Use(name string) error {
	b, err := named(name)
	if err != nil {
		return err
	}
	active.Store(b)
	return nil
}

// named returns the back end of one of the names that [Use] lists.
func named(name string) (*backend, error) {
	refuse := func(cause error, format string, args ...any) error {
		return &specstream.InputError{
			Field:  "BLAS back end",
			Reason: fmt.Sprintf(format, args...),
			Hint:   "choose auto, openblas, native, avx512, avx2 or go",
			Err:    cause,
		}
	}
	native := func(l level) (*backend, error) {
		if l > bestLevel {
			return nil, refuse(nil, "this CPU lacks %s", l)
		}
		return nativeBackend(l), nil
	}
	switch strings.ToLower(name) {
	case "", "auto":
		return automatic(), nil
	case "openblas":
		lib, err := loadOpenBLAS()
		if err != nil {
			return nil, refuse(err, "OpenBLAS is not available")
		}
		return openBLASBackend(lib), nil
	case "native":
		return native(bestLevel)
	case "avx512":
		return native(levelAVX512)
	case "avx2":
		return native(levelAVX2)
	case "go":
		return native(levelGo)
	}
	return nil, refuse(nil, "unknown back end %q", name)
}
