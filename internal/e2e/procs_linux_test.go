package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is a process as /proc tells.
type process struct {
	pid, parent int
	state       byte // 'Z' for a zombie
	args        []string
}

// processes lists all processes.
func processes(t testing.TB) (list []process) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, d := range dirs {
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue // it has ended
		}
		cmdline, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil {
			continue
		}
		// The name, in parentheses, may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(d))
		require.NoError(t, err)
		parent, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		list = append(list, process{pid, parent, fields[0][0], strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")})
	}
	return list
}

// is reports whether a process runs one of the given commands of a program.
func (p process) is(commands ...string) bool {
	return len(p.args) > 1 && slices.Contains(commands, p.args[1])
}

// alive reports whether a process still runs.
func alive(t testing.TB, pid int) bool {
	return slices.ContainsFunc(processes(t), func(p process) bool { return p.pid == pid && p.state != 'Z' })
}
