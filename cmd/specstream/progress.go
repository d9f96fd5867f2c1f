package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// event is one report of progress. As JSON it is what a worker reads from the
// standard error of the child processes it runs.
type event struct {
	Type            string  `json:"type"` // "progress"
	Stage           string  `json:"stage"`
	Step            int64   `json:"step"`
	Steps           int64   `json:"steps,omitempty"` // 0: unknown
	Loss            float64 `json:"loss,omitempty"`
	TokensPerSecond float64 `json:"tokens_per_second,omitempty"`
	ETASeconds      float64 `json:"eta_seconds,omitempty"`
	// Bytes of TotalBytes (0: unknown) are read, at so many a second.
	Bytes            int64   `json:"bytes,omitempty"`
	TotalBytes       int64   `json:"total_bytes,omitempty"`
	RecordsPerSecond float64 `json:"records_per_second,omitempty"`
	BytesPerSecond   float64 `json:"bytes_per_second,omitempty"`
	// Note is shown to people.
	Note string `json:"note,omitempty"`
}

// reporter shows progress on standard error.
type reporter struct {
	w     io.Writer
	mode  string // "bar", "plain", "jsonl" or "none"
	every time.Duration
	stage string // the bar's
	bar   *progressbar.ProgressBar
	shown map[string]shown // by stage: several may go on at once
}

// shown is the last event of a stage that was shown.
type shown struct {
	at   time.Time
	step int64
}

// newReporter chooses the way --progress asks for.
func (o *options) newReporter() (*reporter, error) {
	r := &reporter{w: os.Stderr, mode: o.progress, every: 5 * time.Second, shown: map[string]shown{}}
	switch o.progress {
	case "auto":
		r.mode = "plain"
		if isTerminal(os.Stderr) {
			r.mode = "bar"
		}
	case "jsonl":
		r.every = time.Second
	case "plain", "none":
	default:
		return nil, usageError{fmt.Errorf("--progress %q is not auto, plain, jsonl or none", o.progress)}
	}
	return r, nil
}

// report shows an event: at once when a stage begins or ends, otherwise now and then.
func (r *reporter) report(e event) {
	e.Type = "progress"
	end := e.Steps > 0 && e.Step >= e.Steps
	if r.mode == "bar" {
		if e.Steps > 0 {
			r.draw(e, e.Stage != r.stage, end)
			r.stage = e.Stage
			return
		}
		// There is no bar to draw towards an unknown end: it is told in lines.
	}
	last, known := r.shown[e.Stage]
	due := !known || end && e.Step != last.step || time.Since(last.at) >= r.every
	if r.mode == "none" || !due {
		return
	}
	r.shown[e.Stage] = shown{time.Now(), e.Step}
	if r.mode == "jsonl" {
		if b, err := json.Marshal(e); err == nil {
			fmt.Fprintf(r.w, "%s\n", b)
		}
		return
	}
	r.finish()
	r.stage = ""
	fmt.Fprintln(r.w, e.text())
}

// text renders an event on one line.
func (e event) text() string {
	s := e.Stage
	switch {
	case e.Steps > 0:
		s = fmt.Sprintf("%-10s %d/%d", e.Stage, e.Step, e.Steps)
	case e.Step > 0:
		s = fmt.Sprintf("%-10s %d", e.Stage, e.Step)
	}
	if e.Loss != 0 {
		s += fmt.Sprintf("  loss %.4f", e.Loss)
	}
	if e.TokensPerSecond != 0 {
		s += fmt.Sprintf("  %.0f tokens/s", e.TokensPerSecond)
	}
	s += e.flow()
	if e.ETASeconds >= 1 {
		s += fmt.Sprintf("  %s left", (time.Duration(e.ETASeconds) * time.Second).String())
	}
	if e.Note != "" {
		s += "  " + e.Note
	}
	return s
}

// flow renders how much is read, and how fast.
func (e event) flow() (s string) {
	const mb = 1e6
	switch {
	case e.TotalBytes > 0:
		s = fmt.Sprintf("  %.1f/%.1f MB", float64(e.Bytes)/mb, float64(e.TotalBytes)/mb)
	case e.Bytes > 0:
		s = fmt.Sprintf("  %.1f MB", float64(e.Bytes)/mb)
	}
	if e.BytesPerSecond > 0 {
		s += fmt.Sprintf("  %.1f MB/s", e.BytesPerSecond/mb)
	}
	if e.RecordsPerSecond > 0 {
		s += fmt.Sprintf("  %.0f records/s", e.RecordsPerSecond)
	}
	return s
}

func (r *reporter) draw(e event, first, end bool) {
	if first {
		r.finish()
		r.bar = progressbar.NewOptions64(e.Steps, progressbar.OptionSetWriter(r.w), progressbar.OptionSetWidth(28),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionUseANSICodes(true))
	}
	d := e.Stage
	if e.Loss != 0 {
		d += fmt.Sprintf(" loss %.3f", e.Loss)
	}
	d += e.flow()
	if e.Note != "" {
		d += " " + e.Note
	}
	r.bar.Describe(d)
	_ = r.bar.Set64(e.Step) // drawing errors have nowhere to go
	if end {
		r.finish()
	}
}

// finish ends the bar that is drawn, if any.
func (r *reporter) finish() {
	if r.bar != nil {
		_ = r.bar.Exit()
		fmt.Fprintln(r.w)
		r.bar = nil
	}
}
