package tokenizer

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// spmProto is what a SentencePiece model file (sentencepiece_model.proto) says
// about encoding and decoding.
type spmProto struct {
	pieces []spmPiece
	kind   uint64 // model_type

	fallback    bool   // byte_fallback
	suffix      bool   // treat_whitespace_as_suffix
	bos, eos    int32  // bos_id, eos_id
	unkSurface  string // what decoding gives for the unknown piece
	charsmap    []byte
	dummyPrefix bool
	removeExtra bool // remove_extra_whitespaces
	escape      bool // escape_whitespaces
	denormalize bool // there is a denormalizer
}

// spmPiece is an entry of the vocabulary.
type spmPiece struct {
	text  string
	score float32
	kind  pieceKind
}

type pieceKind uint64

const (
	pieceNormal pieceKind = iota + 1
	pieceUnknown
	pieceControl
	pieceUser // user_defined_symbols
	pieceUnused
	pieceByte
)

// Values of model_type.
const (
	spmUnigram = 1
	spmBPE     = 2
)

// message calls each for every field of a protocol buffer message: v holds a
// number, b the bytes of a field with a length.
func message(b []byte, each func(field protowire.Number, v uint64, b []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		var part []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var w uint32
			w, n = protowire.ConsumeFixed32(b)
			v = uint64(w)
		case protowire.BytesType:
			part, n = protowire.ConsumeBytes(b)
			if part == nil {
				part = []byte{}
			}
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := each(field, v, part); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// errNoPieces tells other binary files from models.
var errNoPieces = errors.New("there are no pieces")

// parseSPMProto reads a model. Fields that do not bear on encoding or decoding
// are skipped.
func parseSPMProto(b []byte) (*spmProto, error) {
	m := &spmProto{
		kind: spmUnigram, bos: 1, eos: 2, unkSurface: " \u2047 ",
		dummyPrefix: true, removeExtra: true, escape: true,
	}
	err := message(b, func(field protowire.Number, _ uint64, b []byte) error {
		if b == nil && field <= 5 {
			return fmt.Errorf("field %d is no message", field)
		}
		switch field {
		case 1:
			p := spmPiece{kind: pieceNormal}
			err := message(b, func(field protowire.Number, v uint64, b []byte) error {
				switch field {
				case 1:
					p.text = string(b)
				case 2:
					p.score = math.Float32frombits(uint32(v))
				case 3:
					p.kind = pieceKind(v)
				}
				return nil
			})
			m.pieces = append(m.pieces, p)
			return err
		case 2:
			return message(b, m.trainerField)
		case 3:
			return message(b, m.normalizerField)
		case 5:
			return message(b, func(field protowire.Number, _ uint64, b []byte) error {
				m.denormalize = m.denormalize || field == 2 && len(b) > 0
				return nil
			})
		}
		return nil
	})
	if err == nil && len(m.pieces) == 0 {
		err = errNoPieces
	}
	return m, err
}

func (m *spmProto) trainerField(field protowire.Number, v uint64, b []byte) error {
	switch field {
	case 3:
		m.kind = v
	case 24:
		m.suffix = v != 0
	case 35:
		m.fallback = v != 0
	case 41:
		m.bos = int32(v)
	case 42:
		m.eos = int32(v)
	case 44:
		m.unkSurface = string(b)
	}
	return nil
}

func (m *spmProto) normalizerField(field protowire.Number, v uint64, b []byte) error {
	switch field {
	case 2:
		m.charsmap = b
	case 3:
		m.dummyPrefix = v != 0
	case 4:
		m.removeExtra = v != 0
	case 5:
		m.escape = v != 0
	}
	return nil
}
