package activities

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/specstream/specstream/workflows"
)

// Bounds on what a child may say. A child that says more is cut short, never
// buffered.
const (
	maxResult = 1 << 20  // bytes of standard output
	maxLine   = 64 << 10 // bytes of a line of standard error
	maxTail   = 8 << 10  // bytes of the last lines kept for an error message
)

// result collects a child's standard output.
type result struct {
	b        []byte
	overflow bool
}

func (r *result) Write(p []byte) (int, error) {
	if room := maxResult - len(r.b); len(p) > room {
		r.overflow = true
		r.b = append(r.b, p[:room]...)
	} else {
		r.b = append(r.b, p...)
	}
	return len(p), nil
}

// narration splits a child's standard error into lines: progress updates state,
// the rest goes to log and is kept as the tail.
type narration struct {
	state *state
	log   func(line string)

	line []byte // the line being received
	cut  bool   // it is longer than maxLine
	tail []string
	size int // bytes in tail
}

func (n *narration) Write(p []byte) (int, error) {
	written := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			n.add(p)
			return written, nil
		}
		n.add(p[:i])
		n.flush()
		p = p[i+1:]
	}
}

func (n *narration) add(p []byte) {
	if room := maxLine - len(n.line); len(p) > room {
		p, n.cut = p[:room], true
	}
	n.line = append(n.line, p...)
}

// flush ends the line being received. It is called once more when the child has
// ended, for a last line without a newline.
func (n *narration) flush() {
	line, cut := bytes.TrimSpace(n.line), n.cut
	n.line, n.cut = n.line[:0], false
	if len(line) == 0 {
		return
	}
	if !cut && n.progress(line) {
		return
	}
	text := strings.ToValidUTF8(string(line), "\uFFFD")
	if cut {
		text += " […]"
	}
	n.log(text)
	if len(text) > maxTail {
		text = text[:maxTail]
	}
	n.tail = append(n.tail, text)
	n.size += len(text)
	for n.size > maxTail && len(n.tail) > 1 {
		n.size -= len(n.tail[0])
		n.tail = n.tail[1:]
	}
}

// progress takes a line that is a progress event. Unknown fields are for people
// and other readers.
func (n *narration) progress(line []byte) bool {
	if line[0] != '{' {
		return false
	}
	var e struct {
		Type string `json:"type"`
		workflows.Progress
	}
	if err := json.Unmarshal(line, &e); err != nil || e.Type != "progress" {
		return false
	}
	n.state.advance(e.Progress)
	return true
}

// last returns the last line, without the program's name in front.
func (n *narration) last() string {
	if len(n.tail) == 0 {
		return ""
	}
	return strings.TrimPrefix(n.tail[len(n.tail)-1], "specstream: ")
}

// state is how far a piece of work is, shared between the one that does it and
// the one that heartbeats.
type state struct {
	mu       sync.Mutex
	progress workflows.Progress
	moved    time.Time // when the step, the stage or the bytes last changed
	pid      int
}

func newState(stage string) *state {
	return &state{progress: workflows.Progress{Stage: stage}, moved: time.Now()}
}

func (s *state) advance(p workflows.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Stage != s.progress.Stage || p.Step != s.progress.Step || p.Bytes != s.progress.Bytes {
		s.moved = time.Now()
	}
	s.progress = p
}

func (s *state) started(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pid = pid
}

// heartbeat describes the state. Work is stalled when nothing has moved for stall.
func (s *state) heartbeat(host string, stall time.Duration) workflows.Heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := time.Since(s.moved)
	return workflows.Heartbeat{Progress: s.progress, Host: host, PID: s.pid, IdleSeconds: idle.Seconds(), Stalled: idle > stall}
}

func (s *state) at() workflows.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}
