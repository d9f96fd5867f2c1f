package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model/safetensors"
)

// raw builds a file of that header and so many zero bytes of data.
func raw(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

func read(b []byte) (*safetensors.File, error) {
	return safetensors.Read("f.safetensors", bytes.NewReader(b), int64(len(b)))
}

const ok = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`

// refused are damaged files, by what is wrong with them.
var refused = map[string][]byte{
	"empty":                      {},
	"shorter than the length":    {1, 2},
	"length over the limit":      append([]byte{1, 0xe1, 0xf5, 5, 0, 0, 0, 0}, ok...),
	"length past the end":        {255, 0, 0, 0, 0, 0, 0, 0, '{', '}'},
	"length overflows int64":     {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'},
	"empty header":               raw("", 0),
	"truncated data":             raw(ok, 3),
	"trailing data":              raw(ok, 5),
	"tensor twice":               raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4),
	"tensor twice, escaped":      raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}`, 4),
	"field twice":                raw(`{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4),
	"field twice, escaped":       raw(`{"a":{"dtype":"U8","d\u0074ype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4),
	"metadata key twice":         raw(`{"__metadata__":{"x":"1","x":"2"}}`, 0),
	"metadata twice":             raw(`{"__metadata__":{},"__metadata__":{}}`, 0),
	"metadata a number":          raw(`{"__metadata__":{"x":1}}`, 0),
	"metadata nested":            raw(`{"__metadata__":{"x":{"y":"z"}}}`, 0),
	"metadata null":              raw(`{"__metadata__":null}`, 0),
	"overlap":                    raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6),
	"same bytes twice":           raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4),
	"hole":                       raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}`, 9),
	"hole at the start":          raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}}`, 5),
	"reversed offsets":           raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}`, 4),
	"negative offset":            raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[-4,0]}}`, 4),
	"offset overflows":           raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551620]}}`, 4),
	"three offsets":              raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,9]}}`, 4),
	"null offset":                raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[null,4]}}`, 4),
	"null offsets":               raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":null}}`, 4),
	"negative dimension":         raw(`{"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}}`, 4),
	"fractional dimension":       raw(`{"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}}`, 4),
	"dimension with exponent":    raw(`{"a":{"dtype":"U8","shape":[4e0],"data_offsets":[0,4]}}`, 4),
	"null dimension":             raw(`{"a":{"dtype":"U8","shape":[null],"data_offsets":[0,0]}}`, 0),
	"null shape":                 raw(`{"a":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, 1),
	"nested shape":               raw(`{"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}}`, 4),
	"shape overflows":            raw(`{"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 0),
	"shape overflows beside a 0": raw(`{"a":{"dtype":"F64","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}}`, 0),
	"size is not shape × dtype":  raw(`{"a":{"dtype":"U16","shape":[4],"data_offsets":[0,4]}}`, 4),
	"unknown dtype":              raw(`{"a":{"dtype":"X","shape":[4],"data_offsets":[0,4]}}`, 4),
	"null dtype":                 raw(`{"a":{"dtype":null,"shape":[4],"data_offsets":[0,4]}}`, 4),
	"upper-case key":             raw(`{"a":{"DTYPE":"U8","shape":[4],"data_offsets":[0,4]}}`, 4),
	"missing key":                raw(`{"a":{"dtype":"U8","shape":[4]}}`, 4),
	"surplus key":                raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}}`, 4),
	"leading space":              raw(" "+ok, 4),
	"second object":              raw(ok+"{}", 4),
	"NUL padding":                raw(ok+"\x00", 4),
	"newline padding":            raw(ok+"\n", 4),
	"invalid UTF-8":              raw(strings.Replace(ok, `"a"`, "\"\xff\"", 1), 4),
	"unclosed object":            raw(ok[:len(ok)-1], 4),
	"deeply nested":              raw(`{"a":`+strings.Repeat("[", 20000), 0),
	"null header":                raw(`null`, 0),
	"array header":               raw(`[]`, 0),
	"missing comma":              raw(strings.Replace(ok, `,"shape"`, ` "shape"`, 1), 4),
	"trailing comma":             raw(strings.Replace(ok, `[4]`, `[4,]`, 1), 4),
}

func TestReadRefusesDamage(t *testing.T) {
	_, err := read(raw(ok, 4))
	require.NoError(t, err)
	for name, b := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := read(b)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, "f.safetensors", in.File)
		})
	}
}

func TestErrorsNameTheTensor(t *testing.T) {
	for name, tensor := range map[string]string{"hole": "b", "unknown dtype": "a", "shape overflows": "a", "truncated data": "a"} {
		_, err := read(refused[name])
		var in *specstream.InputError
		require.ErrorAs(t, err, &in, name)
		require.Equal(t, tensor, in.Field, name)
	}
}

// TestWriteMatchesReferenceBytes uses the byte strings of the reference
// implementation's own serialisation tests.
func TestWriteMatchesReferenceBytes(t *testing.T) {
	var w bytes.Buffer
	data := []float32{0, 1, 2, 3, 4, 5}
	require.NoError(t, safetensors.Write(&w, nil, []safetensors.Source{safetensors.Float32Source("attn0", safetensors.F32, []int{1, 1, 2, 3}, data)}))
	want := append([]byte{72, 0, 0, 0, 0, 0, 0, 0}, `{"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       `...)
	want = append(want, 0, 0, 0, 0, 0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64, 0, 0, 160, 64)
	require.Equal(t, want, w.Bytes())

	w.Reset()
	require.NoError(t, safetensors.Write(&w, map[string]string{"framework": "pt"}, nil))
	require.Equal(t, "\x28\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"framework\":\"pt\"}}     ", w.String())
}

func TestWriteThenRead(t *testing.T) {
	long := make([]float32, 700_001) // over two chunks, and not a multiple of one
	for i := range long {
		long[i] = float32(i%1024) - 512
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, safetensors.Write(f, map[string]string{"k": "v\n\"é"}, []safetensors.Source{
		safetensors.Float32Source("half", safetensors.F16, []int{len(long)}, long),
		safetensors.Float32Source("brain", safetensors.BF16, []int{2, 2}, []float32{1, -2, 0.5, 0}),
		safetensors.Float32Source("z\"\\é<", safetensors.F32, []int{len(long)}, long),
		safetensors.Float32Source("scalar", safetensors.F32, nil, []float32{3}),
		safetensors.Float32Source("none", safetensors.F32, []int{0, 7}, nil),
		{Name: "ids", DType: safetensors.I64, Shape: []int{2}, Write: func(w io.Writer) error {
			return binary.Write(w, binary.LittleEndian, []int64{-1, 1 << 40})
		}},
	}))
	require.NoError(t, f.Close())

	r, err := safetensors.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	require.Equal(t, map[string]string{"k": "v\n\"é"}, r.Metadata)
	require.Equal(t, []string{"brain", "half", "ids", "none", "scalar", "z\"\\é<"}, r.Names())
	require.Equal(t, "ids", r.Tensors[0].Name, "larger elements come first")
	for _, name := range []string{"half", "z\"\\é<"} {
		x, found := r.Lookup(name)
		require.True(t, found)
		got := make([]float32, x.Len())
		require.NoError(t, r.Float32s(x, got))
		require.Equal(t, long, got, name)
	}
	x, _ := r.Lookup("scalar")
	one := make([]float32, 1)
	require.NoError(t, r.Float32s(x, one))
	require.Equal(t, float32(3), one[0])
	x, _ = r.Lookup("none")
	require.NoError(t, r.Float32s(x, nil))
	x, _ = r.Lookup("ids")
	ids, err := r.Int64s(x)
	require.NoError(t, err)
	require.Equal(t, []int64{-1, 1 << 40}, ids)
	require.True(t, specstream.BadInput(r.Float32s(x, make([]float32, 2))), "I64 does not convert to float32")
	_, found := r.Lookup("absent")
	require.False(t, found)
}

func TestWriteRefuses(t *testing.T) {
	src := func(name string, d safetensors.DType, shape []int, data []float32) safetensors.Source {
		return safetensors.Float32Source(name, d, shape, data)
	}
	for name, sources := range map[string][]safetensors.Source{
		"a name twice":            {src("a", safetensors.F32, []int{1}, []float32{1}), src("a", safetensors.F32, []int{1}, []float32{1})},
		"the metadata's name":     {src("__metadata__", safetensors.F32, []int{1}, []float32{1})},
		"too little data":         {src("a", safetensors.F32, []int{2}, []float32{1})},
		"too much data":           {src("a", safetensors.F32, []int{1}, []float32{1, 2})},
		"a negative dimension":    {src("a", safetensors.F32, []int{-1}, nil)},
		"an unknown dtype":        {src("a", "F12", []int{1}, []float32{1})},
		"a value over half's":     {src("a", safetensors.F16, []int{1}, []float32{65520})},
		"a value over bfloat16's": {src("a", safetensors.BF16, []int{1}, []float32{math.MaxFloat32})},
	} {
		require.Error(t, safetensors.Write(io.Discard, nil, sources), name)
	}
	full := errors.New("disk full")
	require.ErrorIs(t, safetensors.Write(failing{full}, nil, []safetensors.Source{src("a", safetensors.F32, []int{1}, []float32{1})}), full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzRead(f *testing.F) {
	f.Add(raw(ok, 4))
	f.Add(raw(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[2,0],"data_offsets":[4,4]}}   `, 4))
	for _, b := range refused {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := read(b)
		if err != nil {
			if !specstream.BadInput(err) {
				t.Fatalf("not an input error: %v", err)
			}
			return
		}
		var sources []safetensors.Source
		var total int64
		for _, x := range file.Tensors {
			total += x.End - x.Begin
			data, err := io.ReadAll(file.Section(x))
			if err != nil || int64(len(data)) != x.End-x.Begin {
				t.Fatalf("tensor %q: %d bytes, %v", x.Name, len(data), err)
			}
			sources = append(sources, safetensors.Source{Name: x.Name, DType: x.DType, Shape: x.Shape, Write: func(w io.Writer) error {
				_, err := w.Write(data)
				return err
			}})
		}
		if total > int64(len(b)) {
			t.Fatalf("%d bytes of tensors in a file of %d", total, len(b))
		}
		var again bytes.Buffer
		if err := safetensors.Write(&again, file.Metadata, sources); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := read(again.Bytes()); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

func TestHalfConversions(t *testing.T) {
	for h := range 1 << 16 { // every half and every bfloat16 survives the round trip
		f := safetensors.Float16ToFloat32(uint16(h))
		b := safetensors.BFloat16ToFloat32(uint16(h))
		if f != f {
			require.True(t, math.IsNaN(float64(safetensors.Float16ToFloat32(safetensors.Float32ToFloat16(f)))))
		} else {
			require.Equal(t, uint16(h), safetensors.Float32ToFloat16(f))
		}
		if b != b {
			require.True(t, math.IsNaN(float64(safetensors.BFloat16ToFloat32(safetensors.Float32ToBFloat16(b)))))
		} else {
			require.Equal(t, uint16(h), safetensors.Float32ToBFloat16(b))
		}
	}
	for _, c := range []struct {
		name string
		f    float32
		half uint16
		bf   uint16
	}{
		{"tie to even, down", 1 + 1.0/2048, 0x3c00, 0x3f80},
		{"tie to even, up", 1 + 3.0/2048, 0x3c02, 0x3f80},
		{"bfloat16 tie down", 1 + 1.0/256, 0x3c04, 0x3f80},
		{"bfloat16 tie up", 1 + 3.0/256, 0x3c0c, 0x3f82},
		{"largest half", 65504, 0x7bff, 0x4780},
		{"just under overflow", 65519.996, 0x7bff, 0x4780},
		{"overflow", 65520, 0x7c00, 0x4780},
		{"smallest subnormal", 1.0 / (1 << 24), 0x0001, 0x3380},
		{"half of it ties to zero", 1.0 / (1 << 25), 0x0000, 0x3300},
		{"one and a half of it ties to two", 1.5 / (1 << 24), 0x0002, 0x33c0},
		{"largest subnormal rounds to a normal", 1.0/(1<<14) - 1.0/(1<<26), 0x0400, 0x3880},
		{"negative zero", float32(math.Copysign(0, -1)), 0x8000, 0x8000},
		{"infinity", float32(math.Inf(-1)), 0xfc00, 0xff80},
	} {
		require.Equal(t, c.half, safetensors.Float32ToFloat16(c.f), c.name)
		require.Equal(t, c.bf, safetensors.Float32ToBFloat16(c.f), c.name)
	}
}

func BenchmarkFloat32s(b *testing.B) {
	var w bytes.Buffer
	data := make([]float32, 4<<20)
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16} {
		w.Reset()
		require.NoError(b, safetensors.Write(&w, nil, []safetensors.Source{safetensors.Float32Source("a", d, []int{len(data)}, data)}))
		f, err := read(w.Bytes())
		require.NoError(b, err)
		b.Run(string(d), func(b *testing.B) {
			b.SetBytes(int64(len(data)) * d.Size())
			for b.Loop() {
				if err := f.Float32s(f.Tensors[0], data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
