package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Source is a tensor to write.
type Source struct {
	Name  string
	DType DType
	Shape []int
	// Write writes exactly the tensor's bytes, little-endian, row-major.
	Write func(w io.Writer) error
}

// Float32Source returns a source that writes data as F32, or rounded to nearest
// even as F16 or BF16. Writing fails when a finite value overflows the type.
func Float32Source(name string, dtype DType, shape []int, data []float32) Source {
	return Source{Name: name, DType: dtype, Shape: shape, Write: func(w io.Writer) error {
		return writeFloat32s(w, name, dtype, data)
	}}
}

func writeFloat32s(w io.Writer, name string, dtype DType, data []float32) error {
	buf := make([]byte, 0, min(chunk, len(data)*4))
	for i, v := range data {
		switch dtype {
		case F32:
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		case F16, BF16:
			half := Float32ToBFloat16(v)
			back := BFloat16ToFloat32(half)
			if dtype == F16 {
				half = Float32ToFloat16(v)
				back = Float16ToFloat32(half)
			}
			if math.IsInf(float64(back), 0) && !math.IsInf(float64(v), 0) {
				return fmt.Errorf("tensor %s: element %d, %g, does not fit %s", name, i, v, dtype)
			}
			buf = binary.LittleEndian.AppendUint16(buf, half)
		default:
			return fmt.Errorf("tensor %s: cannot write float32 as %s", name, dtype)
		}
		if len(buf)+4 > cap(buf) {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(buf)
	return err
}

// Write writes a file of the given tensors and metadata to w as a stream. Its
// bytes depend on the contents alone: tensors go by falling element size, so
// that each is aligned, then by name; metadata keys are sorted; the header is
// padded with spaces to a multiple of 8 bytes.
func Write(w io.Writer, metadata map[string]string, sources []Source) error {
	order := slices.Clone(sources)
	slices.SortFunc(order, func(a, b Source) int {
		if d := b.DType.Size() - a.DType.Size(); d != 0 {
			return int(d)
		}
		return strings.Compare(a.Name, b.Name)
	})
	header, lengths, err := encodeHeader(metadata, order)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	if _, err := w.Write(header); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	for i, s := range order {
		cw := &countingWriter{w: w}
		if err := s.Write(cw); err != nil {
			return fmt.Errorf("write safetensors: %w", err)
		}
		if cw.n != lengths[i] {
			return fmt.Errorf("write safetensors: tensor %s wrote %d bytes, shape %v of %s takes %d", s.Name, cw.n, s.Shape, s.DType, lengths[i])
		}
	}
	return nil
}

// encodeHeader returns the padded JSON header and each tensor's length in bytes.
func encodeHeader(metadata map[string]string, order []Source) ([]byte, []int64, error) {
	var h bytes.Buffer
	h.WriteByte('{')
	put := func(key string, v any) error {
		if h.Len() > 1 {
			h.WriteByte(',')
		}
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		h.Write(k)
		h.WriteByte(':')
		h.Write(b)
		return nil
	}
	if len(metadata) > 0 {
		if err := put("__metadata__", metadata); err != nil { // map keys come out sorted
			return nil, nil, err
		}
	}
	seen := map[string]bool{"__metadata__": true}
	lengths := make([]int64, len(order))
	var at int64
	for i, s := range order {
		if seen[s.Name] {
			return nil, nil, fmt.Errorf("tensor name %q is taken", s.Name)
		}
		seen[s.Name] = true
		n, err := byteLen(s.DType, s.Shape)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", s.Name, err)
		}
		if at > math.MaxInt64-n {
			return nil, nil, fmt.Errorf("tensor %s: the data section overflows", s.Name)
		}
		lengths[i] = n
		if err := put(s.Name, struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{s.DType, append([]int{}, s.Shape...), [2]int64{at, at + n}}); err != nil {
			return nil, nil, err
		}
		at += n
	}
	h.WriteByte('}')
	for h.Len()%8 != 0 {
		h.WriteByte(' ')
	}
	if h.Len() > maxHeader {
		return nil, nil, fmt.Errorf("a header of %d bytes is over the limit of %d", h.Len(), maxHeader)
	}
	return h.Bytes(), lengths, nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
