// Package report renders a pipeline's result as one self-contained HTML file:
// no script, no font and no image is loaded from anywhere.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

// Data is all that a report shows.
type Data struct {
	Title    string
	Job      string // the job's digest
	Outcome  string
	Started  time.Time
	Ended    time.Time
	Facts    []Fact
	Modes    []Mode
	Decision string
}

// Fact is one line of the summary.
type Fact struct{ Name, Value string }

// Mode is one trained adapter.
type Mode struct {
	Name       string
	Checkpoint string
	Digest     string
	Parameters int64
	Seconds    float64 // of training
	// Measures are the evaluation's figures in the order shown.
	Measures []Fact
	// Loss and Accuracy hold one curve a stream; LossNames names them.
	Loss, Accuracy []Curve
	// Accepted counts target calls by the number of tokens they emitted, from 1 on.
	Accepted []int64
	// Bars compares tokens a second.
	Speed   []Bar
	Samples []Sample
	Gates   []Gate
}

// Curve is a line of a chart: one value a step.
type Curve struct {
	Name   string
	Values []float64
}

// Bar is one bar of a bar chart.
type Bar struct {
	Name  string
	Value float64
	Unit  string
}

// Sample is one decoded prompt.
type Sample struct {
	Prompt, Reference string
	// Calls are the texts that each target call emitted, in order: the prefill's
	// token first.
	Calls []string
	Match bool
	Beta  float64 // tokens a call
}

// Gate is one gate's verdict.
type Gate struct {
	Name, Detail string
	Passed       bool
}

//go:embed report.html
var page string

var tmpl = template.Must(template.New("report").Funcs(template.FuncMap{
	"chart": chart, "bars": bars, "histogram": histogram,
	"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"seconds": func(s float64) string { return (time.Duration(s*10) * time.Second / 10).String() },
	"num":     func(v float64) string { return fmt.Sprintf("%.2f", v) },
}).Parse(page))

// Write renders d.
func Write(w io.Writer, d Data) error {
	if err := tmpl.Execute(w, d); err != nil {
		return fmt.Errorf("render report: %w", err)
	}
	return nil
}

// colours of a chart's lines; the first is the main stream's.
var colours = []string{"#1f2937", "#2563eb", "#0d9488", "#ca8a04", "#dc2626", "#7c3aed", "#db2777", "#65a30d"}

const (
	chartW, chartH = 460.0, 200.0
	padL, padB     = 44.0, 24.0
	padT, padR     = 8.0, 8.0
)

// chart draws curves over steps as an SVG.
func chart(title, unit string, curves []Curve) template.HTML {
	lo, hi, n := math.Inf(1), math.Inf(-1), 0
	for _, c := range curves {
		n = max(n, len(c.Values))
		for _, v := range c.Values {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	var b strings.Builder
	open(&b, title)
	if n == 0 || math.IsInf(lo, 0) || math.IsNaN(lo+hi) {
		fmt.Fprintf(&b, `<text x="%v" y="%v" class="t">no data</text></svg>`, chartW/2-20, chartH/2)
		return template.HTML(b.String())
	}
	lo = min(lo, 0)
	if hi <= lo {
		hi = lo + 1
	}
	x := func(i int) float64 { return padL + (chartW-padL-padR)*float64(i)/float64(max(1, n-1)) }
	y := func(v float64) float64 { return padT + (chartH-padT-padB)*(1-(v-lo)/(hi-lo)) }
	for i := range 5 {
		v := lo + (hi-lo)*float64(i)/4
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="g"/><text x="%.1f" y="%.1f" class="t" text-anchor="end">%s</text>`,
			padL, chartW-padR, y(v), y(v), padL-4, y(v)+3, label(v))
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" class="t">step 1</text><text x="%.1f" y="%.1f" class="t" text-anchor="end">%d%s</text>`,
		padL, chartH-6, chartW-padR, chartH-6, n, template.HTMLEscapeString(unit))
	for i, c := range curves {
		if len(c.Values) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.4" points="`, colours[i%len(colours)])
		stride := max(1, len(c.Values)/400) // means of a few steps: one point a pixel suffices
		for k := 0; k < len(c.Values); k += stride {
			part := c.Values[k:min(k+stride, len(c.Values))]
			var sum float64
			for _, v := range part {
				sum += v
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", x(k), y(sum/float64(len(part))))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg><div class="legend">`)
	for i, c := range curves {
		fmt.Fprintf(&b, `<span><i style="background:%s"></i>%s</span>`, colours[i%len(colours)], template.HTMLEscapeString(c.Name))
	}
	b.WriteString(`</div>`)
	return template.HTML(b.String())
}

// bars draws a horizontal bar chart as an SVG.
func bars(title string, list []Bar) template.HTML {
	top := 0.0
	for _, v := range list {
		top = max(top, v.Value)
	}
	var b strings.Builder
	open(&b, title)
	row := (chartH - padT - 8) / float64(max(1, len(list)))
	for i, v := range list {
		w := 0.0
		if top > 0 {
			w = (chartW - 170 - 90) * v.Value / top
		}
		y := padT + row*float64(i)
		fmt.Fprintf(&b, `<text x="164" y="%.1f" class="t" text-anchor="end">%s</text><rect x="170" y="%.1f" width="%.1f" height="%.1f" fill="%s"/><text x="%.1f" y="%.1f" class="t">%s %s</text>`,
			y+row/2+3, template.HTMLEscapeString(v.Name), y+row*0.2, w, row*0.6, colours[1+i%(len(colours)-1)], 176+w, y+row/2+3, label(v.Value), template.HTMLEscapeString(v.Unit))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// histogram draws how many target calls emitted 1, 2, … tokens.
func histogram(title string, counts []int64) template.HTML {
	var total int64
	for _, c := range counts {
		total += c
	}
	list := make([]Bar, len(counts))
	for i, c := range counts {
		list[i] = Bar{Name: fmt.Sprintf("%d token(s) a call", i+1), Unit: "%"}
		if total > 0 {
			list[i].Value = 100 * float64(c) / float64(total)
		}
	}
	return bars(title, list)
}

func open(b *strings.Builder, title string) {
	fmt.Fprintf(b, `<div class="ct">%s</div><svg viewBox="0 0 %v %v" role="img" aria-label="%s">`, template.HTMLEscapeString(title), chartW, chartH, template.HTMLEscapeString(title))
}

func label(v float64) string {
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1e6:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
