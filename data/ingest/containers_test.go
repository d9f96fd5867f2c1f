package ingest

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

type instruction struct {
	Instruction string `json:"instruction" parquet:"instruction"`
	Input       string `json:"input" parquet:"input"`
	Output      string `json:"output" parquet:"output"`
}

func instructions(n int) (out []instruction) {
	for i := range n {
		out = append(out, instruction{fmt.Sprintf("Add one to the number, %d times.", i%7), strings.Repeat("1,\n\"2\" ", i%5), fmt.Sprintf("It is %d, of course.", i)})
	}
	return out
}

// parquetFile has a row group for every so many rows.
func parquetFile[T any](t testing.TB, rows []T, group int) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, parquet.Compression(&parquet.Zstd))
	for len(rows) > 0 {
		n := min(group, len(rows))
		_, err := w.Write(rows[:n])
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		rows = rows[n:]
	}
	require.NoError(t, w.Close())
	return b.String()
}

// TestContainersAgree: the same records give the same samples from whatever
// container, cut into parts or not.
func TestContainersAgree(t *testing.T) {
	records := instructions(200)
	array, err := json.Marshal(records)
	require.NoError(t, err)
	var lines, table, packed bytes.Buffer
	c := csv.NewWriter(&table)
	require.NoError(t, c.Write([]string{"output", "instruction", "input"}))
	for _, r := range records {
		require.NoError(t, json.NewEncoder(&lines).Encode(r))
		require.NoError(t, c.Write([]string{r.Output, r.Instruction, r.Input}))
	}
	c.Flush()
	require.NoError(t, c.Error())
	z := gzip.NewWriter(&packed)
	_, err = z.Write(lines.Bytes())
	require.NoError(t, err)
	require.NoError(t, z.Close())
	files := map[string]string{"a.json": string(array), "a.jsonl": lines.String(), "a.csv": table.String(), "a.jsonl.gz": packed.String(), "a.parquet": parquetFile(t, records, 30)}
	var want []data.Sample
	for _, c := range []struct {
		input     string
		container string
		parts     bool
	}{
		{"a.json", data.ContainerArray, true},
		{"a.jsonl", data.ContainerLines, true},
		{"a.csv", data.ContainerCSV, true},
		{"a.jsonl.gz", data.ContainerLines, false},
		{"a.parquet", data.ContainerParquet, true},
	} {
		t.Run(c.input, func(t *testing.T) {
			var first Account
			for i, workers := range []int{1, 3, 8} {
				o := with(files, func(o *Options) { o.Workers = workers })
				got, err := Run(t.Context(), specstream.DataSpec{Format: "alpaca", Inputs: []string{c.input}, PartitionBytes: 4000, Clean: &specstream.CleanSpec{Dedupe: specstream.DedupeNear}}, o)
				require.NoError(t, err)
				if i > 0 {
					require.Equal(t, first, got)
					continue
				}
				first = got
				l := got.Dataset.Lineage
				require.Equal(t, c.container, l.Parts[0].Container)
				require.Equal(t, c.parts, len(l.Parts) > 3)
				made := samples(t, o.Blobs, got.Dataset)
				for i := range made {
					made[i].ID = "" // after the content of the part
				}
				if want == nil {
					want = made
				}
				require.Equal(t, want, made)
			}
		})
	}
}

// TestWrongSchemaIsNoEmptyDataset: a table without the columns that a format
// needs is an error, never a data set of fewer records.
func TestWrongSchemaIsNoEmptyDataset(t *testing.T) {
	type other struct {
		Question string `parquet:"question"`
		Count    int    `parquet:"count"`
	}
	good := parquetFile(t, instructions(5), 5)
	for name, files := range map[string]map[string]string{
		"parquet": {"good": good, "bad": parquetFile(t, []other{{"q", 1}}, 1)},
		"csv":     {"good": good, "bad.csv": "question,count\nq,1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := "bad"
			if name == "csv" {
				bad = "bad.csv"
			}
			_, err := Run(t.Context(), specstream.DataSpec{Format: "alpaca", Inputs: []string{"good", bad}, MaxBad: "100%"}, with(files, nil))
			require.True(t, specstream.BadInput(err), "%v", err)
			require.ErrorContains(t, err, bad+": ")
			require.ErrorContains(t, err, "instruction")
		})
	}
}
