package ingest

import (
	"sync"
	"time"

	"github.com/specstream/specstream/data"
)

// The stages, as Progress names them.
const (
	StagePlan    = "plan"
	StageSign    = "sign"
	StageResolve = "resolve"
	StageProcess = "process"
)

// Progress is how far a stage is.
type Progress struct {
	// Stage is one of the Stage… constants.
	Stage string `json:"stage"`
	// Bytes of Total stored bytes are done; Total is 0 when it is not known.
	Bytes int64 `json:"bytes"`
	Total int64 `json:"total,omitempty"`
	// Done of Parts parts are done; of StagePlan, inputs.
	Done  int `json:"done"`
	Parts int `json:"parts"`
	// Read, Kept and Quarantined count records; Samples and Tokens what they gave.
	Read        int64 `json:"read"`
	Kept        int64 `json:"kept"`
	Quarantined int64 `json:"quarantined"`
	Samples     int64 `json:"samples"`
	Tokens      int64 `json:"tokens"`
	// RecordsPerSecond and BytesPerSecond are the means of what this process
	// has done since the stage began; what was done before counts as nothing.
	RecordsPerSecond float64 `json:"records_per_second,omitempty"`
	BytesPerSecond   float64 `json:"bytes_per_second,omitempty"`
	// ETASeconds is how long the rest of the stage takes at that speed; 0 when
	// it can't be told.
	ETASeconds float64 `json:"eta_seconds,omitempty"`
}

// tellEvery is how often progress is told.
const tellEvery = 200 * time.Millisecond

// tracker adds up what goes on in several goroutines.
type tracker struct {
	tell func(Progress)

	mu      sync.Mutex
	p       Progress
	records int64 // read by this process
	bytes   int64
	began   time.Time
	told    time.Time
}

// start begins a stage of so many stored bytes and parts.
func (t *tracker) start(stage string, total int64, parts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p, t.records, t.bytes = Progress{Stage: stage, Total: total, Parts: parts}, 0, 0
	t.began, t.told = time.Now(), time.Now()
}

// add adds what was done.
func (t *tracker) add(d Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum(d)
	t.records += d.Read
	t.bytes += d.Bytes
	t.say(false)
}

// skip adds what needed no doing: a part that is done already, whose bytes are
// not counted yet.
func (t *tracker) skip(p data.Part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum(Progress{Bytes: p.Bytes, Done: 1})
	t.say(false)
}

// end tells the end of a stage that did not fail.
func (t *tracker) end(err error) {
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say(true)
}

func (t *tracker) sum(d Progress) {
	t.p.Bytes += d.Bytes
	t.p.Done += d.Done
	t.p.Read += d.Read
	t.p.Kept += d.Kept
	t.p.Quarantined += d.Quarantined
	t.p.Samples += d.Samples
	t.p.Tokens += d.Tokens
}

// say tells the progress when it is due.
func (t *tracker) say(now bool) {
	if t.tell == nil || !now && time.Since(t.told) < tellEvery {
		return
	}
	t.told = time.Now()
	p := t.p
	if s := time.Since(t.began).Seconds(); s > 0 && t.bytes > 0 {
		p.RecordsPerSecond, p.BytesPerSecond = float64(t.records)/s, float64(t.bytes)/s
		if p.Total > p.Bytes {
			p.ETASeconds = float64(p.Total-p.Bytes) / p.BytesPerSecond
		}
	}
	t.tell(p)
}
