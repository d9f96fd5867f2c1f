package clean

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/specstream/specstream"
)

// A signature file is, with all numbers little-endian:
//
//	"specsig", version of the rules (1 byte)
//	of every record: kind (1), number (8), hash of the whole (16) and, if the kind is full, MinHash (256)
//	0xFF, count of the records (8), xxh3-128 of all that is before (16)
const (
	signatureMagic = "specsig"
	rowHead        = 1 + 8 + 16
	nearBytes      = 2 * permutations
	endMark        = 0xFF
)

// SignatureWriter writes the signatures of a part's records that Clean kept, in
// order. The file it makes is the same for the same records, and says itself
// whether it is whole.
type SignatureWriter struct {
	w     *bufio.Writer
	sum   *xxh3.Hasher
	row   []byte
	count int64
	last  int64
	err   error
	begun bool
}

// NewSignatureWriter returns a writer to w. Close ends the file; it does not
// close w.
func NewSignatureWriter(w io.Writer) *SignatureWriter {
	return &SignatureWriter{w: bufio.NewWriterSize(w, 64<<10), sum: xxh3.New()}
}

// Write adds a record; number is its number in its input, and grows from one
// record to the next.
func (w *SignatureWriter) Write(number int64, s Signature) error {
	if w.err != nil {
		return w.err
	}
	if number <= w.last {
		return fmt.Errorf("signature of record %d after that of record %d: numbers must grow", number, w.last)
	}
	w.last = number
	w.count++
	w.row = append(w.row[:0], byte(s.kind))
	w.row = binary.LittleEndian.AppendUint64(w.row, uint64(number))
	w.row = append(w.row, s.exact[:]...)
	if s.kind == full {
		for _, v := range s.near {
			w.row = binary.LittleEndian.AppendUint16(w.row, v)
		}
	}
	return w.emit(w.row)
}

// emit writes bytes that the sum covers.
func (w *SignatureWriter) emit(b []byte) error {
	if !w.begun {
		w.begun = true
		if err := w.emit(append([]byte(signatureMagic), rules)); err != nil {
			return err
		}
	}
	if _, err := w.sum.Write(b); err != nil {
		w.err = err
		return err
	}
	_, w.err = w.w.Write(b)
	return w.err
}

var errClosed = errors.New("the signature file is closed")

// Close ends the file. A writer without records makes a sound file too.
func (w *SignatureWriter) Close() error {
	if w.err != nil {
		return w.err
	}
	if err := w.emit(binary.LittleEndian.AppendUint64([]byte{endMark}, uint64(w.count))); err != nil {
		return err
	}
	sum := w.sum.Sum128().Bytes()
	if _, err := w.w.Write(sum[:]); err != nil {
		w.err = err
		return err
	}
	if err := w.w.Flush(); err != nil {
		w.err = err
		return err
	}
	w.err = errClosed
	return nil
}

// SignatureSource is a signature file; blobs of a store are such.
type SignatureSource interface {
	io.ReaderAt
	// Size is the file's length in bytes.
	Size() int64
}

// readSignatures gives the rows of a signature file, head and MinHash (nil but
// for the kind full), valid until the next. That the file is whole is only known
// at the end: until then the rows decide nothing.
func readSignatures(src SignatureSource, part int, row func(head, near []byte) error) error {
	damaged := func(format string, args ...any) error {
		return &specstream.InputError{
			File: fmt.Sprintf("signatures of part %d", part), Reason: "damaged: " + fmt.Sprintf(format, args...),
			Hint: "remove the file, so that the part is signed again",
		}
	}
	r := bufio.NewReaderSize(io.NewSectionReader(src, 0, src.Size()), 256<<10)
	sum := xxh3.New()
	read := func(b []byte) error {
		switch _, err := io.ReadFull(r, b); {
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return damaged("it ends early")
		case err != nil:
			return fmt.Errorf("reading the signatures of part %d: %w", part, err)
		}
		_, err := sum.Write(b)
		return err
	}
	buf := make([]byte, rowHead+nearBytes)
	if err := read(buf[:len(signatureMagic)+1]); err != nil {
		return err
	}
	if string(buf[:len(signatureMagic)]) != signatureMagic {
		return damaged("it is no signature file")
	}
	if v := buf[len(signatureMagic)]; v != rules {
		return &specstream.InputError{
			File: fmt.Sprintf("signatures of part %d", part), Reason: fmt.Sprintf("made by version %d of the rules; this is version %d", v, rules),
			Hint: "remove the file, so that the part is signed again",
		}
	}
	last, count := int64(0), int64(0)
	for {
		if err := read(buf[:1]); err != nil {
			return err
		}
		if buf[0] == endMark {
			break
		}
		if buf[0] >= byte(kindsEnd) {
			return damaged("record %d is of the unknown kind %d", count+1, buf[0])
		}
		head, near := buf[:rowHead], buf[rowHead:]
		if err := read(head[1:]); err != nil {
			return err
		}
		number := rowNumber(head)
		if number <= last {
			return damaged("record %d follows record %d", number, last)
		}
		last = number
		if signatureKind(buf[0]) != full {
			near = nil
		} else if err := read(near); err != nil {
			return err
		}
		count++
		if err := row(head, near); err != nil {
			return err
		}
	}
	if err := read(buf[:8]); err != nil {
		return err
	}
	if n := int64(binary.LittleEndian.Uint64(buf)); n != count {
		return damaged("it holds %d records and says %d", count, n)
	}
	want := sum.Sum128().Bytes()
	if err := read(buf[:16]); err != nil {
		return err
	}
	if string(buf[:16]) != string(want[:]) {
		return damaged("its checksum is wrong")
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return damaged("it goes on behind its end")
	}
	return nil
}

func rowNumber(row []byte) int64       { return int64(binary.LittleEndian.Uint64(row[1:])) }
func rowExact(row []byte) []byte       { return row[9:rowHead] }
func rowKind(row []byte) signatureKind { return signatureKind(row[0]) }
