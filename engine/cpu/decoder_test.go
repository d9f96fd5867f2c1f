package cpu_test

import (
	"testing"

	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/engine/cpu"
	"github.com/specstream/specstream/engine/enginetest"
	"github.com/specstream/specstream/model"
)

func TestSuite(t *testing.T) {
	enginetest.Run(t, func(w *model.Weights, a *model.Adapter) (engine.Decoder, error) { return cpu.New(w, a) }, enginetest.Options{})
}
