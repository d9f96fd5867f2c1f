// Package safetensors reads and writes the safetensors format strictly: a file
// is either exactly what its header says, or refused with an error that names
// the file and the tensor.
//
// A file is an 8-byte little-endian header length, a JSON header, and one data
// section that the tensors tile without holes or overlap. The reader checks all
// of it before any tensor is touched and before any allocation that a damaged
// length could blow up; it then reads tensors in bounded chunks.
package safetensors

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/specstream/specstream"
)

// DType is an element type by its safetensors name.
type DType string

// Element types. Only F32, F16 and BF16 convert to float32.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
)

// sizes holds the bytes an element of each type takes.
var sizes = map[DType]int64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
	"I16": 2, "U16": 2, F16: 2, BF16: 2,
	I32: 4, "U32": 4, F32: 4,
	I64: 8, "U64": 8, F64: 8,
}

// Size returns the bytes an element takes, or 0 for an unknown type.
func (d DType) Size() int64 { return sizes[d] }

// Tensor describes one tensor of a file.
type Tensor struct {
	// Name is the tensor's key in the header.
	Name string
	// DType is the type of its elements.
	DType DType
	// Shape is the length of each dimension, outermost first; empty for a scalar.
	Shape []int
	// Begin and End delimit its bytes in the data section.
	Begin, End int64
}

// Len returns the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// byteLen returns the bytes a tensor of this type and shape takes.
func byteLen(d DType, shape []int) (int64, error) {
	size, ok := sizes[d]
	if !ok {
		return 0, fmt.Errorf("unknown dtype %q", string(d))
	}
	n := uint64(size)
	zero := false
	for _, s := range shape {
		if s < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if s == 0 {
			zero = true // still check the other dimensions for overflow
			continue
		}
		hi, lo := bits.Mul64(n, uint64(s))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %v of %s overflows", shape, d)
		}
		n = lo
	}
	if zero {
		return 0, nil
	}
	return int64(n), nil
}

// bad returns an input error about a file, or about one tensor of it.
func bad(file, tensor, format string, args ...any) error {
	return &specstream.InputError{File: file, Field: tensor, Reason: fmt.Sprintf(format, args...)}
}
