// Package devservertest gives tests a Temporal server.
package devservertest

import (
	"context"
	"testing"
	"time"

	"github.com/specstream/specstream/infra/devserver"
)

// Start starts a server for one test, in memory unless o names a data folder,
// and stops it when the test ends. It skips the test where the server would
// have to be built first, which takes longer than a test may.
func Start(t testing.TB, o devserver.Options) *devserver.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a Temporal server: left out with -short")
	}
	if !devserver.Ready(o) {
		t.Skip("needs the Temporal development server, which is not built yet: go run ./infra/devserver/prebuild")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o.Headless = true
	s, err := devserver.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}
