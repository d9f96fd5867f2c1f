// Package layers holds the import direction of the packages.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/specstream/specstream"

// layer is the height of each package tree; a package may import only trees
// below its own, and its own.
var layer = map[string]int{
	"": 0, "internal": 0,
	"model": 1, "kernels": 1, "report": 1,
	"segattn": 2, "data": 2, "checkpoints": 2,
	"trainer": 3, "engine": 3, "workflows": 3, "infra": 3,
	"jobs":                 4,
	"workflows/activities": 5,
	"cmd":                  6,
}

// tree returns the longest key of layer that holds a package.
func tree(pkg string) (string, bool) {
	rel := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	for rel != "" {
		if _, ok := layer[rel]; ok {
			return rel, true
		}
		i := strings.LastIndexByte(rel, '/')
		if i < 0 {
			break
		}
		rel = rel[:i]
	}
	return rel, rel == ""
}

func TestImportsGoOneWay(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		from, ok := tree(p.ImportPath)
		if !ok {
			t.Errorf("%s belongs to no layer: place it", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			temporal := strings.HasPrefix(imp, "go.temporal.io/")
			if temporal && (layer[from] < 3 || from == "trainer" || from == "engine" || from == "jobs") {
				t.Errorf("%s imports %s: domain packages run without Temporal", p.ImportPath, imp)
			}
			if from == "" && strings.Contains(imp, ".") {
				t.Errorf("%s imports %s: the root package has the standard library alone", p.ImportPath, imp)
			}
			if !strings.HasPrefix(imp, module) {
				continue
			}
			to, _ := tree(imp)
			if to == from {
				continue
			}
			if layer[to] >= layer[from] {
				t.Errorf("%s imports %s: imports go one way (docs/architecture.md)", p.ImportPath, imp)
			}
			if from == "workflows" && to != "" {
				t.Errorf("%s imports %s: workflows know the root package and Temporal alone", p.ImportPath, imp)
			}
		}
	}
	if seen < 10 {
		t.Fatalf("only %d packages were found", seen)
	}
}
