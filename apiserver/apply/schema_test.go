package apply

import (
	"bytes"
	"encoding/binary"
	goflag "flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

var rewrite = goflag.Bool("rewrite", false, "write schema.bin anew from client-go's schemas")

// TestSchemasAreClientGos holds schema.bin to what client-go of go.mod's version has.
func TestSchemasAreClientGos(t *testing.T) {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	v, err := applyconfigurations.NewTypeConverter(clientscheme.Scheme).ObjectToTyped(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := v.Schema() // all of them
	if *rewrite {
		if err := os.WriteFile("schema.bin", encodeSchema(t, want), 0o644); err != nil {
			t.Fatal(err)
		}
		schemas = encodeSchema(t, want)
	}
	got, err := decodeTypes(schemas)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Types, got, cmpopts.IgnoreUnexported(smdschema.Map{})); diff != "" {
		t.Errorf("schema.bin is not of this client-go: run `go test ./apiserver/apply -run SchemasAreClientGos -rewrite`\n%.2000s", diff)
	}
	if !bytes.Equal(encodeSchema(t, want), schemas) {
		t.Error("schema.bin is not as it would be written now: run the test with -rewrite")
	}
}

func TestDamagedSchemasAreToldFrom(t *testing.T) {
	for cut := 1; cut < len(schemas); cut += len(schemas) / 50 {
		if _, err := decodeTypes(schemas[:cut]); err == nil {
			t.Errorf("the first %d bytes of %d were taken for all", cut, len(schemas))
		}
	}
}

func BenchmarkSchemas(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeTypes(schemas); err != nil {
			b.Fatal(err)
		}
	}
}

type schemaWriter struct {
	t       *testing.T
	strings [][]byte
	places  map[string]uint64
	body    []byte
}

func encodeSchema(t *testing.T, s *smdschema.Schema) []byte {
	w := &schemaWriter{t: t, places: map[string]uint64{}}
	w.number(len(s.Types))
	for _, d := range s.Types {
		w.string(d.Name)
		w.atom(d.Atom)
	}
	out := binary.AppendUvarint(nil, uint64(len(w.strings)))
	for _, text := range w.strings {
		out = append(binary.AppendUvarint(out, uint64(len(text))), text...)
	}
	return append(out, w.body...)
}

func (w *schemaWriter) number(n int) { w.body = binary.AppendUvarint(w.body, uint64(n)) }

func (w *schemaWriter) string(s string) {
	place, known := w.places[s]
	if !known {
		place = uint64(len(w.strings))
		w.places[s] = place
		w.strings = append(w.strings, []byte(s))
	}
	w.body = binary.AppendUvarint(w.body, place)
}

func bit(set bool, value int) int {
	if set {
		return value
	}
	return 0
}

func (w *schemaWriter) atom(a smdschema.Atom) {
	w.number(bit(a.Scalar != nil, hasScalar) | bit(a.List != nil, hasList) | bit(a.Map != nil, hasMap))
	if a.Scalar != nil {
		w.string(string(*a.Scalar))
	}
	if a.List != nil {
		w.ref(a.List.ElementType)
		w.string(string(a.List.ElementRelationship))
		w.number(len(a.List.Keys))
		for _, k := range a.List.Keys {
			w.string(k)
		}
	}
	if m := a.Map; m != nil {
		w.number(len(m.Fields))
		for _, f := range m.Fields {
			w.string(f.Name)
			w.ref(f.Type)
			w.value(f.Default)
		}
		w.number(len(m.Unions))
		for _, u := range m.Unions {
			w.number(bit(u.Discriminator != nil, 1))
			if u.Discriminator != nil {
				w.string(*u.Discriminator)
			}
			w.number(bit(u.DeduceInvalidDiscriminator, 1))
			w.number(len(u.Fields))
			for _, f := range u.Fields {
				w.string(f.FieldName)
				w.string(f.DiscriminatorValue)
			}
		}
		w.ref(m.ElementType)
		w.string(string(m.ElementRelationship))
	}
}

func (w *schemaWriter) ref(r smdschema.TypeRef) {
	inlined := r.Inlined != smdschema.Atom{}
	w.number(bit(r.NamedType != nil, hasName) | bit(inlined, hasAtom) | bit(r.ElementRelationship != nil, hasRelationship) | bit(r.Nullable, isNullable))
	if r.NamedType != nil {
		w.string(*r.NamedType)
	}
	if inlined {
		w.atom(r.Inlined)
	}
	if r.ElementRelationship != nil {
		w.string(string(*r.ElementRelationship))
	}
}

func (w *schemaWriter) value(v any) {
	switch v := v.(type) {
	case nil:
		w.number(noDefault)
	case bool:
		w.number(falseDefault + bit(v, 1))
	case int:
		if v < 0 {
			w.t.Fatalf("a default of %d: teach the form negative numbers", v)
		}
		w.number(intDefault)
		w.number(v)
	case string:
		w.number(stringDefault)
		w.string(v)
	case map[any]any:
		if len(v) > 0 {
			w.t.Fatalf("a default of %v: teach the form such maps", v)
		}
		w.number(emptyMapDefault)
	default:
		w.t.Fatalf("a default of type %T: teach the form such values", v)
	}
}
