package jsonwrite_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTextAtEachPlace(t *testing.T) {
	for _, odd := range []string{"<", ">", "&", `"`, `\`, "\n", "\r", "\t", "\b", "\f", "\x00", "\x1f", "\x7f", "\u2028", "\u2029", "\u2027", "é", "日本", "😀", "\xff",
		"\xe2", "\xe2\x80", "\xed\xa0\x80", "\xc0\x80", "\ufffd", "\x80", "=", "'", "%", "$", "[", "]", ";", "?", "!", "#", " ", "~", "\xa0", "\xbc"} {
		for before := range 20 {
			for after := range 20 {
				same(t, strings.Repeat("a", before)+odd+strings.Repeat("b", after))
			}
		}
	}
}

func TestEachByteIsJudgedAlikeAtEachPlace(t *testing.T) {
	for c := range 256 {
		for n := 1; n < 20; n++ {
			for at := range n {
				b := []byte(strings.Repeat("x", n))
				b[at] = byte(c)
				same(t, string(b))
			}
		}
	}
}

func TestRandomText(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		b := make([]byte, r.IntN(40))
		for i := range b {
			if b[i] = byte(r.Uint32()); r.IntN(3) > 0 {
				b[i] = " !\"#&'<=>\\abc\x7f"[r.IntN(14)]
			}
		}
		same(t, string(b))
		same(t, map[string]string{string(b): string(b), "a": "b"})
		same(t, map[string]any{string(b): []any{string(b)}})
	}
}

func FuzzText(f *testing.F) {
	f.Add("plain")
	f.Add("<\u2028\xff\x00\"\\")
	f.Fuzz(func(t *testing.T, s string) {
		same(t, s)
		same(t, map[string]string{s: s})
	})
}

var documents = []string{`{}`, `[]`, ` {}`, `{} `, `{"a":1}`, `{"a": 1}`, `{"a":}`, `{"a"}`, `{a:1}`, `{"a":1,}`, `[1,]`, `[,1]`, `[1 ,2]`, `"a"`, `"\u00e9"`, `"\u00g9"`, `"\x"`,
	`"<"`, "\"\u2028\"", "\"\u2027\"", "\"\xff\"", "\"\n\"", `tru`, `true`, `false`, `null`, `nul`, `-`, `-0`, `-0.`, `0.5`, `00`, `01`, `1e5`, `1e`, `1e+`, `1E-05`, `.5`, `+1`, `1.5.`, `{"a":1}}`,
	`[[[[]]]]`, `[[[]]`, `{"a":{"b":[{"c":{}}]}}`, `{"a":1,"a":2}`, `[1}`, `{"a":1]`, ``, `"`, `"\`, `"\u12`, `{"f:metadata":{"f:labels":{".":{},"k:{\"a\":1}":{}}}}`, `"\/"`, `[true,false,null]`}

func TestDocumentsOfMarshalers(t *testing.T) {
	for _, d := range append(documents, strings.Repeat("[", 300)+strings.Repeat("]", 300), strings.Repeat("[", 20000)+strings.Repeat("]", 20000)) {
		same(t, []json.RawMessage{json.RawMessage(d)})
		same(t, onValue{d})
	}
}

func FuzzDocument(f *testing.F) {
	for _, d := range documents {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, d string) { same(t, onValue{d}) })
}
