package kinds_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/kind"
)

// TestFixtures checks testdata/GROUP.KIND/{accept,reject}/*.yaml. A file holds one object to create, or two: what is stored and what it is updated to.
// Its comments direct the test:
//
//	# want: TEXT    a reject file's error has this text
//	# status          the update is of the status
func TestFixtures(t *testing.T) {
	everyKind(t, func(t *testing.T, g *kind.Group, k *kind.Kind) {
		group := g.Name
		if group == "" {
			group = "core"
		}
		for _, wish := range []string{"accept", "reject"} {
			files, err := filepath.Glob(filepath.Join("testdata", group+"."+strings.ToLower(k.Names.Kind), wish, "*.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				t.Run(wish+"/"+filepath.Base(file), func(t *testing.T) { fixture(t, k, file, wish == "accept") })
			}
		}
	})
}

var (
	expectation = regexp.MustCompile(`(?m)^# want: (.*)$`)
	ofStatus    = regexp.MustCompile(`(?m)^# status$`)
	separator   = regexp.MustCompile(`(?m)^---$`)
)

func fixture(t *testing.T, k *kind.Kind, file string, accept bool) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	docs := separator.Split(string(content), -1)
	status := ofStatus.Match(content)
	expected := expectation.FindAllSubmatch(content, -1)
	if accept == (len(expected) > 0) {
		t.Fatal("a reject file says what error to expect, an accept file none")
	}
	var old kind.Object
	var errs field.ErrorList
	for i, doc := range docs {
		if len(errs) > 0 {
			t.Fatalf("the stored object is refused: %v", errs.ToAggregate())
		}
		var obj kind.Object
		obj, errs = write(t, k, doc, old, status && i == 1)
		old = obj
	}
	if accept {
		if len(errs) > 0 {
			t.Fatalf("refused: %v", errs.ToAggregate())
		}
		convertible(t, k, old)
		return
	}
	if len(errs) == 0 {
		t.Fatal("accepted")
	}
	for _, e := range expected {
		if want := string(e[1]); !strings.Contains(errs.ToAggregate().Error(), want) {
			t.Errorf("refused with %q, want %q in it", errs.ToAggregate().Error(), want)
		}
	}
}

// write does to a document what the API server does to a request's body.
func write(t *testing.T, k *kind.Kind, doc string, old kind.Object, status bool) (kind.Object, field.ErrorList) {
	t.Helper()
	obj, v := decode(t, k, doc)
	obj.SetNamespace("default")
	if k.Scope == kind.Cluster {
		obj.SetNamespace("")
	}
	obj.SetUID("11111111-2222-3333-4444-555555555555")
	obj.SetCreationTimestamp(metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)))
	if k.Default != nil {
		k.Default(obj)
	}
	prepare, validate := k.Prepare, k.Validate
	if status {
		prepare, validate = k.PrepareStatus, k.ValidateStatus
	}
	if prepare != nil {
		prepare(obj, old)
	}
	var errs field.ErrorList
	if k.ValidateName != nil {
		for _, m := range k.ValidateName(obj.GetName(), false) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), obj.GetName(), m))
		}
	}
	if validate != nil {
		errs = append(errs, validate(obj, old)...)
	}
	if v.Validate != nil && !status {
		errs = append(errs, v.Validate(obj, old)...)
	}
	return obj, errs
}

func decode(t *testing.T, k *kind.Kind, doc string) (kind.Object, *kind.Version) {
	t.Helper()
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
		t.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(meta.APIVersion)
	if err != nil {
		t.Fatal(err)
	}
	v, ok := k.Version(gv)
	if !ok || meta.Kind != k.Names.Kind {
		t.Fatalf("%s %s is no version of %s", meta.APIVersion, meta.Kind, k.Names.Kind)
	}
	obj := v.New()
	if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
		t.Fatal(err)
	}
	if v.From == nil {
		return obj.(kind.Object), v
	}
	hub, err := v.From(obj)
	if err != nil {
		t.Fatal(err)
	}
	return hub, v
}

// convertible checks that a valid object loses nothing in any version.
func convertible(t *testing.T, k *kind.Kind, obj kind.Object) {
	t.Helper()
	for i := range k.Versions {
		v := &k.Versions[i]
		if v.To == nil {
			continue
		}
		back := there(t, v, obj)
		back.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
		if !equality.Semantic.DeepEqual(runtime.Object(obj), runtime.Object(back)) {
			t.Errorf("through %s (-sent +came back):\n%s", v.GroupVersion(), cmp.Diff(text(obj), text(back)))
		}
	}
}
