package activities

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/specstream/specstream/workflows"
)

// maxCrashes is how often a child may crash at one and the same place before the
// work is given up. Crashes with progress in between, and everything that comes
// from outside, such as a store that is away or a killed process, are retried
// for ever.
const maxCrashes = 5

// crashes counts a job's consecutive crashes at one place. It is kept on this
// machine's disk, which is as far as the knowledge of a likely fault need go.
type crashes struct {
	Stage string `json:"stage"`
	Step  int64  `json:"step"`
	Count int    `json:"count"`
}

// noteCrash records one more crash at p and returns how many there were there.
func noteCrash(dir, job string, p workflows.Progress) (int, error) {
	path := crashFile(dir, job)
	var c crashes
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("crash record: %w", err)
	}
	if c.Stage != p.Stage || c.Step != p.Step {
		c = crashes{Stage: p.Stage, Step: p.Step}
	}
	c.Count++
	if b, err = json.Marshal(c); err != nil {
		return 0, fmt.Errorf("crash record: %w", err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return 0, fmt.Errorf("crash record: %w", err)
	}
	return c.Count, nil
}

// forgetCrashes ends the count of a job that has succeeded.
func forgetCrashes(dir, job string) error {
	if err := os.Remove(crashFile(dir, job)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("crash record: %w", err)
	}
	return nil
}

func crashFile(dir, job string) string { return filepath.Join(dir, job+".crashes.json") }
