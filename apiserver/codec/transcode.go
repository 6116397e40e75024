package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/yare-project/yare/internal/jsonwrite"
)

// maxCBORDepth is how deep maps and arrays may lie in each other, as in Kubernetes and in its JSON.
const maxCBORDepth = 10000

// transcoder writes CBOR as JSON while it reads it: nothing is built in between.
type transcoder struct {
	data  []byte
	at    int
	out   []byte
	limit int
	chunk []byte // puts together a string that comes in pieces
}

var (
	errCutShort = errors.New("unexpected EOF")
	errTooDeep  = fmt.Errorf("exceeded max nested level %d", maxCBORDepth)
)

// Major types of RFC 8949, 3.1.
const (
	majorUnsigned = iota
	majorNegative
	majorBytes
	majorText
	majorArray
	majorMap
	majorTag
	majorSimple
)

// Tags that say what text stands for a string of bytes (RFC 8949, 3.4).
const (
	tagTime, tagEpoch               = 0, 1
	tagPositiveBignum, tagNegative  = 2, 3
	tagBase64URL, tagBase64, tagHex = 21, 22, 23
	indefinite, breakCode           = 31, 0xff
)

// head reads the beginning of an item: its major type, the five bits beside it, and its argument.
func (t *transcoder) head() (major, info byte, n uint64, err error) {
	if t.at >= len(t.data) {
		return 0, 0, 0, errCutShort
	}
	b := t.data[t.at]
	t.at++
	major, info = b>>5, b&31
	switch {
	case info < 24:
		return major, info, uint64(info), nil
	case info > 27 && info < indefinite:
		return 0, 0, 0, fmt.Errorf("invalid additional information %d for type %d", info, major)
	case info == indefinite:
		return major, info, 0, nil
	}
	size := 1 << (info - 24)
	if len(t.data)-t.at < size {
		return 0, 0, 0, errCutShort
	}
	for _, c := range t.data[t.at : t.at+size] {
		n = n<<8 | uint64(c)
	}
	t.at += size
	return major, info, n, nil
}

// value writes one item; tag is the innermost tag around it, 0 for none that matters.
func (t *transcoder) value(depth int, tag uint64) error {
	major, info, n, err := t.head()
	if err != nil {
		return err
	}
	switch major {
	case majorUnsigned, majorNegative:
		err = t.integer(major, info, n)
	case majorBytes, majorText:
		var s []byte
		if s, err = t.text(major, info, n); err == nil {
			err = t.string(s, major, tag)
		}
	case majorArray:
		err = t.array(depth, info, n)
	case majorMap:
		err = t.object(depth, info, n)
	case majorTag:
		err = t.tagged(depth, info, n)
	default:
		err = t.simple(info, n)
	}
	if err == nil && len(t.out) > t.limit {
		err = tooLargeAsJSON(t.limit)
	}
	return err
}

func (t *transcoder) integer(major, info byte, n uint64) error {
	if info == indefinite {
		return errors.New("an integer of indefinite length")
	}
	if n > math.MaxInt64 {
		return errors.New("an integer that does not fit into 64 bits with a sign")
	}
	if major == majorNegative {
		t.out = strconv.AppendInt(t.out, -1-int64(n), 10)
	} else {
		t.out = strconv.AppendUint(t.out, n, 10)
	}
	return nil
}

// text reads a string. The result shares memory with the body, or lasts until the next string that comes in pieces.
func (t *transcoder) text(major, info byte, n uint64) ([]byte, error) {
	if info != indefinite {
		if n > uint64(len(t.data)-t.at) {
			return nil, errCutShort
		}
		s := t.data[t.at : t.at+int(n)]
		t.at += int(n)
		if major == majorText && !utf8.Valid(s) {
			return nil, errors.New("invalid UTF-8 string")
		}
		return s, nil
	}
	t.chunk = t.chunk[:0]
	for !t.ends() {
		m, i, n, err := t.head()
		if err != nil {
			return nil, err
		}
		if m != major || i == indefinite {
			return nil, errors.New("a piece of a string that is none")
		}
		piece, err := t.text(m, i, n)
		if err != nil {
			return nil, err
		}
		t.chunk = append(t.chunk, piece...)
	}
	return t.chunk, nil
}

// ends takes the end of an item of indefinite length, if it is there.
func (t *transcoder) ends() bool {
	if t.at < len(t.data) && t.data[t.at] == breakCode {
		t.at++
		return true
	}
	return false
}

// string writes a string as the tag around it says.
func (t *transcoder) string(s []byte, major byte, tag uint64) error {
	switch {
	case major != majorBytes: // is text already
	case tag == tagBase64:
		return t.quoted(base64.StdEncoding.AppendEncode(nil, s))
	case tag == tagBase64URL:
		return t.quoted(base64.RawURLEncoding.AppendEncode(nil, s))
	case tag == tagHex:
		return t.quoted(hex.AppendEncode(nil, s))
	}
	if len(t.out)+len(s) > t.limit {
		return tooLargeAsJSON(t.limit)
	}
	t.out = jsonwrite.AppendString(t.out, string(s))
	return nil
}

func (t *transcoder) quoted(s []byte) error {
	t.out = append(append(append(t.out, '"'), s...), '"')
	return nil
}

func (t *transcoder) array(depth int, info byte, n uint64) error {
	if depth >= maxCBORDepth {
		return errTooDeep
	}
	t.out = append(t.out, '[')
	for i := uint64(0); info == indefinite || i < n; i++ {
		if info == indefinite && t.ends() {
			break
		}
		if i > 0 {
			t.out = append(t.out, ',')
		}
		if err := t.value(depth+1, 0); err != nil {
			return err
		}
	}
	t.out = append(t.out, ']')
	return nil
}

func (t *transcoder) object(depth int, info byte, n uint64) error {
	if depth >= maxCBORDepth {
		return errTooDeep
	}
	t.out = append(t.out, '{')
	var keys names
	for i := uint64(0); info == indefinite || i < n; i++ {
		if info == indefinite && t.ends() {
			break
		}
		if i > 0 {
			t.out = append(t.out, ',')
		}
		if err := t.key(&keys); err != nil {
			return err
		}
		if err := t.value(depth+1, 0); err != nil {
			return err
		}
	}
	t.out = append(t.out, '}')
	return nil
}

func (t *transcoder) key(keys *names) error {
	major, info, n, err := t.head()
	if err != nil {
		return err
	}
	if major != majorBytes && major != majorText {
		return fmt.Errorf("a key of type %d: keys are strings", major)
	}
	s, err := t.text(major, info, n)
	if err != nil {
		return err
	}
	if info == indefinite {
		s = bytes.Clone(s)
	}
	if !keys.add(s) {
		return fmt.Errorf("found duplicate map key %q", s)
	}
	if err := t.string(s, majorText, 0); err != nil {
		return err
	}
	t.out = append(t.out, ':')
	return nil
}

// names are the keys of one map: a few in a list, many in a set.
type names struct {
	few  [][]byte
	many map[string]struct{}
}

func (k *names) add(s []byte) bool {
	const few = 16
	if k.many == nil && len(k.few) < few {
		for _, f := range k.few {
			if bytes.Equal(f, s) {
				return false
			}
		}
		k.few = append(k.few, s)
		return true
	}
	if k.many == nil {
		k.many = make(map[string]struct{}, 2*few)
		for _, f := range k.few {
			k.many[string(f)] = struct{}{}
		}
	}
	if _, twice := k.many[string(s)]; twice {
		return false
	}
	k.many[string(s)] = struct{}{}
	return true
}

func (t *transcoder) tagged(depth int, info byte, tag uint64) error {
	if info == indefinite {
		return errors.New("a tag of indefinite length")
	}
	if depth >= maxCBORDepth {
		return errTooDeep
	}
	switch tag {
	case tagTime:
		return t.time()
	case tagEpoch:
		return t.epoch()
	case tagPositiveBignum, tagNegative:
		return errors.New("an integer of arbitrary precision")
	}
	return t.value(depth+1, tag)
}

// time writes the text of a time, if it is one.
func (t *transcoder) time() error {
	major, info, n, err := t.head()
	if err != nil {
		return err
	}
	if major != majorText {
		return errors.New("a tag of time around what is no text")
	}
	s, err := t.text(major, info, n)
	if err != nil {
		return err
	}
	if _, err := time.Parse(time.RFC3339Nano, string(s)); err != nil {
		return fmt.Errorf("cannot set %q for time.Time: %w", s, err)
	}
	return t.string(s, majorText, 0)
}

// epoch writes seconds since 1970 as the text of a time.
func (t *transcoder) epoch() error {
	major, info, n, err := t.head()
	if err != nil {
		return err
	}
	var at time.Time
	switch {
	case major == majorUnsigned && info != indefinite && n <= math.MaxInt64:
		at = time.Unix(int64(n), 0)
	case major == majorNegative && info != indefinite && n <= math.MaxInt64:
		at = time.Unix(-1-int64(n), 0)
	case major == majorSimple && info >= 25 && info <= 27:
		whole, part := math.Modf(float(info, n))
		if math.IsNaN(whole) || math.Abs(whole) > math.MaxInt32*1e6 {
			return errors.New("a time that is none")
		}
		at = time.Unix(int64(whole), int64(part*1e9))
	default:
		return errors.New("a tag of time around what is no number")
	}
	if year := at.UTC().Year(); year < 0 || year > 9999 {
		return fmt.Errorf("a time in the year %d", year)
	}
	return t.quoted(at.UTC().AppendFormat(nil, time.RFC3339Nano))
}

func float(info byte, bits uint64) float64 {
	switch info {
	case 25:
		return half(bits)
	case 26:
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// half is a float of 16 bits (IEEE 754 binary16).
func half(bits uint64) float64 {
	sign, exponent, fraction := 1.0, int(bits>>10&31), float64(bits&1023)
	if bits>>15&1 == 1 {
		sign = -1
	}
	switch {
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	case exponent < 31:
		return sign * math.Ldexp(1024+fraction, exponent-25)
	case fraction > 0:
		return math.NaN()
	}
	return math.Inf(int(sign))
}

func (t *transcoder) simple(info byte, n uint64) error {
	switch {
	case info >= 25 && info <= 27:
		f := float(info, n)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%v has no JSON", f)
		}
		before := len(t.out)
		t.out = strconv.AppendFloat(t.out, f, 'g', -1, 64)
		if !bytes.ContainsAny(t.out[before:], ".e") {
			t.out = append(t.out, ".0"...) // it stays no integer
		}
		return nil
	case info == 20:
		t.out = append(t.out, "false"...)
	case info == 21:
		t.out = append(t.out, "true"...)
	case info == 22:
		t.out = append(t.out, "null"...)
	case info == indefinite:
		return errors.New("an end where nothing was begun")
	default:
		return fmt.Errorf("simple value %d is not recognized", n)
	}
	return nil
}
