package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// options are the flags of every command.
type options struct {
	json     bool
	progress string
}

func (o *options) register(root *cobra.Command) {
	root.PersistentFlags().BoolVar(&o.json, "json", false, "print the result as one JSON object on standard output")
	root.PersistentFlags().StringVar(&o.progress, "progress", "auto", "progress on standard error: auto (bars on a terminal, lines otherwise), plain, jsonl or none")
}

// print writes v as JSON with --json, and otherwise calls text.
func (o *options) print(w io.Writer, v any, text func(w writer)) error {
	if !o.json {
		text(w)
		return nil
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// exactArgs demands n arguments and names what they are.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s wants %s; see `%s --help`", c.CommandPath(), what, c.CommandPath())}
		}
		return nil
	}
}

// required names a flag that must be given.
func required(name, value string) error {
	if value == "" {
		return usageError{fmt.Errorf("--%s is required", name)}
	}
	return nil
}

// isTerminal reports whether f is a character device.
func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// writer is where text for people goes.
type writer = io.Writer
