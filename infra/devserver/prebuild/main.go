// Command prebuild builds the Temporal development server ahead of its first
// use, so that tests need not: run it once on a new machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/specstream/specstream/infra/devserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := devserver.Find(ctx, devserver.Options{Progress: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, "prebuild:", err)
		os.Exit(1)
	}
	fmt.Println(p.Kind, p.Path)
}
