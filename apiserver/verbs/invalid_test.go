package verbs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestInvalidIsKubernetesOwn compares the answers, with one fault, several, some of one text, and all of one.
func TestInvalidIsKubernetesOwn(t *testing.T) {
	at := field.NewPath("spec")
	a, b := field.Required(at.Child("a"), "x"), field.Invalid(at.Index(1), map[string]int{"n": 1}, "y")
	for name, errs := range map[string]field.ErrorList{"none": {}, "one": {a}, "two": {a, b}, "repeated": {a, b, a}, "the same": {b, b}, "of types": {a, b, field.NotSupported(at, "x", []string{"y", "z"}), field.Forbidden(at, ""), field.Duplicate(at, 1), field.InternalError(at, fmt.Errorf("e")), field.TooLong(at, "", 3)}} {
		for _, gk := range []schema.GroupKind{{Kind: "Pod"}, {Group: "apps", Kind: "Deployment"}} {
			if d := cmp.Diff(apierrors.NewInvalid(gk, "n", errs), Invalid(gk, "n", errs)); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
	var many field.ErrorList
	for i := range 20000 {
		many = append(many, field.Required(at.Index(i), ""))
	}
	got := Invalid(schema.GroupKind{Kind: "Pod"}, "n", many).ErrStatus
	if len(got.Details.Causes) != maxFaults || !strings.HasSuffix(got.Message, " and 19000 more") {
		t.Errorf("%d causes, %s", len(got.Details.Causes), got.Message[len(got.Message)-100:])
	}
}
