package mem_test

import (
	"testing"

	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/checkpoints/storetest"
)

func stores() storetest.Open {
	made := map[testing.TB]checkpoints.Store{}
	return func(t testing.TB) checkpoints.Store {
		if made[t] == nil {
			made[t] = mem.New()
		}
		return made[t]
	}
}

func TestStore(t *testing.T) { storetest.Run(t, stores()) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, stores()) }

func TestSharedIsOneStoreAName(t *testing.T) {
	a := mem.Shared("a")
	if again := mem.Shared("a"); a != again || a == mem.Shared("b") {
		t.Error("Shared must give one store for each name")
	}
}

func TestProtocol(t *testing.T) { storetest.RunProtocol(t, stores()) }
