package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"strconv"
	"unicode/utf8"
)

// maxHeader is the reference implementation's cap on the header, in bytes.
const maxHeader = 100_000_000

// chunk is how many bytes of a tensor are read at a time.
const chunk = 1 << 20

// File is an open, fully checked safetensors file. Its methods may be called
// from several goroutines at once.
type File struct {
	// Name is the file's path, for errors.
	Name string
	// Metadata is the header's "__metadata__"; nil when absent.
	Metadata map[string]string
	// Tensors are in the order of their bytes.
	Tensors []Tensor

	byName map[string]int
	data   int64 // where the data section begins
	r      io.ReaderAt
	close  func() error
}

// Open opens and checks the file at path. Damage is an InputError that names
// the file and, where there is one, the tensor. The caller closes the file.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open safetensors: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open safetensors: %w", err), f.Close())
	}
	file, err := Read(path, f, st.Size())
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file.close = f.Close
	return file, nil
}

// Read checks the size bytes of r and returns the file they hold; name is what
// errors call it. Tensors are read from r later, on demand.
func Read(name string, r io.ReaderAt, size int64) (*File, error) {
	var length [8]byte
	if size < int64(len(length)) {
		return nil, bad(name, "", "%d bytes are too few for a safetensors file", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader { // before allocating
		return nil, bad(name, "", "a header of %d bytes is over the limit of %d", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, bad(name, "", "the header of %d bytes runs past the end of the file of %d bytes (truncated?)", n, size)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	f := &File{Name: name, data: 8 + int64(n), r: r, byName: map[string]int{}}
	if err := f.parseHeader(header); err != nil {
		return nil, err
	}
	return f, f.checkTiling(size - f.data)
}

// parseHeader fills Metadata and Tensors, unsorted.
func (f *File) parseHeader(header []byte) error {
	if len(header) == 0 || header[0] != '{' {
		return bad(f.Name, "", "the header does not begin with '{'")
	}
	if !utf8.Valid(header) {
		return bad(f.Name, "", "the header is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(header))
	d.UseNumber()
	if err := f.object(d, "", func(key string) error {
		if key == "__metadata__" {
			return f.parseMetadata(d)
		}
		return f.parseTensor(d, key)
	}); err != nil {
		return err
	}
	for _, c := range header[d.InputOffset():] {
		if c != ' ' {
			return bad(f.Name, "", "byte 0x%02x after the header's object; only spaces may pad it", c)
		}
	}
	return nil
}

// object walks one JSON object. Duplicate keys are refused after unescaping, so
// that two spellings of one name cannot stand for two tensors.
func (f *File) object(d *json.Decoder, tensor string, value func(key string) error) error {
	t, err := d.Token()
	if err != nil {
		return bad(f.Name, tensor, "invalid JSON header: %v", err)
	}
	if t != json.Delim('{') {
		return bad(f.Name, tensor, "want a JSON object in the header, got %v", t)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return bad(f.Name, tensor, "invalid JSON header: %v", err)
		}
		key, ok := t.(string)
		if !ok {
			return bad(f.Name, tensor, "want a key in the header, got %v", t)
		}
		if seen[key] {
			return bad(f.Name, tensor, "key %q appears twice in the header", key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return bad(f.Name, tensor, "invalid JSON header: %v", err)
	}
	return nil
}

func (f *File) parseMetadata(d *json.Decoder) error {
	f.Metadata = map[string]string{}
	return f.object(d, "__metadata__", func(key string) error {
		t, err := d.Token()
		if err != nil {
			return bad(f.Name, "__metadata__", "invalid JSON header: %v", err)
		}
		v, ok := t.(string)
		if !ok {
			return bad(f.Name, "__metadata__", "the value of %q is not a string", key)
		}
		f.Metadata[key] = v
		return nil
	})
}

func (f *File) parseTensor(d *json.Decoder, name string) error {
	t := Tensor{Name: name}
	var offsets []int64
	var shape []int64
	fields := 0
	if err := f.object(d, name, func(key string) (err error) {
		fields++
		switch key {
		case "dtype":
			var tok json.Token
			if tok, err = d.Token(); err != nil {
				return bad(f.Name, name, "invalid JSON header: %v", err)
			}
			s, ok := tok.(string)
			if !ok {
				return bad(f.Name, name, "the dtype is not a string")
			}
			t.DType = DType(s)
		case "shape":
			shape, err = f.integers(d, name, key)
		case "data_offsets":
			offsets, err = f.integers(d, name, key)
		default:
			return bad(f.Name, name, "unknown key %q in the header", key)
		}
		return err
	}); err != nil {
		return err
	}
	if fields != 3 {
		return bad(f.Name, name, "the header lacks dtype, shape or data_offsets")
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return bad(f.Name, name, "data_offsets %v are not a begin and an end", offsets)
	}
	t.Begin, t.End = offsets[0], offsets[1]
	t.Shape = make([]int, len(shape))
	for i, s := range shape {
		t.Shape[i] = int(s)
	}
	want, err := byteLen(t.DType, t.Shape)
	if err != nil {
		return bad(f.Name, name, "%v", err)
	}
	if got := t.End - t.Begin; got != want {
		return bad(f.Name, name, "%d bytes of data, but shape %v of %s takes %d", got, t.Shape, t.DType, want)
	}
	f.Tensors = append(f.Tensors, t)
	return nil
}

// integers parses an array of non-negative integers. It walks tokens because
// decoding into a slice would take null for 0.
func (f *File) integers(d *json.Decoder, tensor, key string) ([]int64, error) {
	t, err := d.Token()
	if err != nil {
		return nil, bad(f.Name, tensor, "invalid JSON header: %v", err)
	}
	if t != json.Delim('[') {
		return nil, bad(f.Name, tensor, "%s is not an array", key)
	}
	out := []int64{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, bad(f.Name, tensor, "invalid JSON header: %v", err)
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, bad(f.Name, tensor, "%s holds %v, not an integer", key, t)
		}
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, bad(f.Name, tensor, "%s holds %s, not an integer of 0 .. %d", key, n, int64(math.MaxInt64))
		}
		out = append(out, int64(v))
	}
	if _, err := d.Token(); err != nil {
		return nil, bad(f.Name, tensor, "invalid JSON header: %v", err)
	}
	return out, nil
}

// checkTiling sorts the tensors by offset and checks that they tile the data
// section of size bytes: no overlap, no hole, nothing missing, nothing left.
func (f *File) checkTiling(size int64) error {
	sort.SliceStable(f.Tensors, func(i, j int) bool {
		a, b := f.Tensors[i], f.Tensors[j]
		return a.Begin < b.Begin || a.Begin == b.Begin && a.End < b.End
	})
	var at int64
	for i, t := range f.Tensors {
		switch {
		case t.Begin < at:
			return bad(f.Name, t.Name, "its data begins at %d, inside the tensor before, which ends at %d", t.Begin, at)
		case t.Begin > at:
			return bad(f.Name, t.Name, "its data begins at %d, leaving a hole from %d", t.Begin, at)
		case t.End > size:
			return bad(f.Name, t.Name, "its data ends at %d, past the data section of %d bytes (truncated?)", t.End, size)
		}
		at = t.End
		f.byName[t.Name] = i
	}
	if at != size {
		return bad(f.Name, "", "%d bytes follow the last tensor", size-at)
	}
	return nil
}

// Lookup returns the tensor of that name.
func (f *File) Lookup(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Section returns a reader of a tensor's raw bytes.
func (f *File) Section(t Tensor) *io.SectionReader {
	return io.NewSectionReader(f.r, f.data+t.Begin, t.End-t.Begin)
}

// Float32s reads a tensor of F32, F16 or BF16 into dst, which has t.Len()
// elements. Any other element type is an InputError.
func (f *File) Float32s(t Tensor, dst []float32) error {
	if t.DType != F32 && t.DType != F16 && t.DType != BF16 {
		return bad(f.Name, t.Name, "dtype %s is not F32, F16 or BF16", t.DType)
	}
	if len(dst) != t.Len() {
		return fmt.Errorf("read tensor %s of %s: %d elements into a slice of %d", t.Name, f.Name, t.Len(), len(dst))
	}
	return f.chunks(t, func(b []byte, at int) {
		switch t.DType {
		case F32:
			for i := 0; i+4 <= len(b); i += 4 {
				dst[at+i/4] = math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
			}
		case BF16:
			for i := 0; i+2 <= len(b); i += 2 {
				dst[at+i/2] = BFloat16ToFloat32(binary.LittleEndian.Uint16(b[i:]))
			}
		case F16:
			for i := 0; i+2 <= len(b); i += 2 {
				dst[at+i/2] = Float16ToFloat32(binary.LittleEndian.Uint16(b[i:]))
			}
		}
	})
}

// Int64s reads a tensor of I64 or I32. Any other element type is an InputError.
func (f *File) Int64s(t Tensor) ([]int64, error) {
	if t.DType != I64 && t.DType != I32 {
		return nil, bad(f.Name, t.Name, "dtype %s is not I64 or I32", t.DType)
	}
	out := make([]int64, t.Len())
	err := f.chunks(t, func(b []byte, at int) {
		if t.DType == I32 {
			for i := 0; i+4 <= len(b); i += 4 {
				out[at+i/4] = int64(int32(binary.LittleEndian.Uint32(b[i:])))
			}
			return
		}
		for i := 0; i+8 <= len(b); i += 8 {
			out[at+i/8] = int64(binary.LittleEndian.Uint64(b[i:]))
		}
	})
	return out, err
}

// chunks hands a tensor's bytes to each in order, whole elements at a time,
// with the index of the first element.
func (f *File) chunks(t Tensor, each func(b []byte, at int)) error {
	size := t.DType.Size()
	buf := make([]byte, min(chunk, t.End-t.Begin))
	for off := t.Begin; off < t.End; {
		n := min(int64(len(buf)), t.End-off)
		if _, err := f.r.ReadAt(buf[:n], f.data+off); err != nil && err != io.EOF {
			return fmt.Errorf("read tensor %s of %s: %w", t.Name, f.Name, err)
		}
		each(buf[:n], int((off-t.Begin)/size))
		off += n
	}
	return nil
}

// Names returns the tensors' names, sorted.
func (f *File) Names() []string {
	names := make([]string, len(f.Tensors))
	for i, t := range f.Tensors {
		names[i] = t.Name
	}
	slices.Sort(names)
	return names
}

// Close closes the underlying file, if Open opened it.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}
