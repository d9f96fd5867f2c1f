package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"

	"go.temporal.io/api/enums/v1"
)

// options are the server's settings, one field a flag.
type options struct {
	ip, uiIP                            string
	port, httpPort, uiPort, metricsPort int
	headless                            bool
	namespaces                          []string
	dbFile                              string
	searchAttributes                    map[string]enums.IndexedValueType
	dynamic                             map[string]any
	pragmas                             map[string]string
	logLevel, logFormat                 string
	parentPID                           int
	version                             bool
}

// parseFlags parses the arguments of `temporal server start-dev`. The leading
// words "server" and "start-dev" are optional.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	for _, word := range []string{"server", "start-dev"} {
		if len(args) > 0 && args[0] == word {
			args = args[1:]
		}
	}
	o := options{
		searchAttributes: map[string]enums.IndexedValueType{},
		dynamic:          map[string]any{},
		pragmas:          map[string]string{},
	}
	f := flag.NewFlagSet("devstack", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.ip, "ip", "127.0.0.1", "`address` the server listens on")
	f.StringVar(&o.uiIP, "ui-ip", "", "`address` the web UI listens on (default: that of --ip)")
	for _, name := range []string{"port", "p"} {
		f.IntVar(&o.port, name, 7233, "`port` of the gRPC service")
	}
	f.IntVar(&o.httpPort, "http-port", 0, "`port` of the HTTP API (default: a free one)")
	f.IntVar(&o.uiPort, "ui-port", 0, "`port` of the web UI (default: --port + 1000)")
	f.IntVar(&o.metricsPort, "metrics-port", 0, "`port` of the Prometheus metrics (default: none)")
	f.BoolVar(&o.headless, "headless", false, "leave the web UI out")
	for _, name := range []string{"namespace", "n"} {
		f.Func(name, "`namespace` to create, besides \"default\"; repeatable", func(s string) error {
			o.namespaces = append(o.namespaces, s)
			return nil
		})
	}
	for _, name := range []string{"db-filename", "f"} {
		f.StringVar(&o.dbFile, name, "", "SQLite `file`; without one everything is kept in memory and lost at exit")
	}
	f.Func("search-attribute", "search attribute to register in new namespaces, `name=Type`; repeatable", func(s string) error {
		k, v, err := keyValue(s)
		if err != nil {
			return err
		}
		t, err := enums.IndexedValueTypeFromString(v)
		if err != nil || t == enums.INDEXED_VALUE_TYPE_UNSPECIFIED {
			return fmt.Errorf("%q is no search attribute type (Text, Keyword, Int, Double, Bool, Datetime, KeywordList)", v)
		}
		o.searchAttributes[k] = t
		return nil
	})
	f.Func("dynamic-config-value", "dynamic configuration, `key=JSON`; repeatable", func(s string) error {
		k, v, err := keyValue(s)
		if err != nil {
			return err
		}
		o.dynamic[k], err = dynamicValue(v)
		return err
	})
	f.Func("sqlite-pragma", "SQLite pragma, `name=value`; repeatable", func(s string) error {
		k, v, err := keyValue(s)
		if err != nil {
			return err
		}
		o.pragmas[k] = v
		return nil
	})
	f.StringVar(&o.logLevel, "log-level", "error", "debug, info, warn, error or never (`level`)")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json (`format`)")
	f.IntVar(&o.parentPID, "parent-pid", 0, "stop when this process is no longer the parent (`pid`)")
	f.BoolVar(&o.version, "version", false, "print the server's version and exit")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if err := o.check(f.Args()); err != nil {
		fmt.Fprintf(stderr, "devstack: %v\n", err)
		return o, err
	}
	if o.uiIP == "" {
		o.uiIP = o.ip
	}
	if o.uiPort == 0 {
		o.uiPort = o.port + 1000
	}
	return o, nil
}

func (o options) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("argument %q is not understood; everything is a flag", rest[0])
	}
	for _, p := range []struct {
		name string
		port int
	}{{"port", o.port}, {"http-port", o.httpPort}, {"ui-port", o.uiPort}, {"metrics-port", o.metricsPort}} {
		if p.port < 0 || p.port > 65535 {
			return fmt.Errorf("--%s %d is no port", p.name, p.port)
		}
	}
	if o.port == 0 {
		return fmt.Errorf("--port 0 is no port")
	}
	if _, ok := logLevels[o.logLevel]; !ok {
		return fmt.Errorf("--log-level %q is not one of debug, info, warn, error, never", o.logLevel)
	}
	if o.logFormat != "text" && o.logFormat != "json" && o.logFormat != "pretty" {
		return fmt.Errorf("--log-format %q is neither text nor json", o.logFormat)
	}
	return nil
}

func keyValue(s string) (key, value string, err error) {
	key, value, ok := strings.Cut(s, "=")
	if !ok || key == "" {
		return "", "", fmt.Errorf("%q: want name=value", s)
	}
	return key, value, nil
}

// dynamicValue decodes one JSON value. Whole numbers become int, since the
// server's integer settings refuse float64.
func dynamicValue(s string) (any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%q is not JSON (strings need quotes): %w", s, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%q holds more than one JSON value", s)
	}
	return plainNumbers(v)
}

func plainNumbers(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return int(i), nil
		}
		return v.Float64()
	case []any:
		for i := range v {
			var err error
			if v[i], err = plainNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			var err error
			if v[k], err = plainNumbers(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
