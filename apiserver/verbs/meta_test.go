package verbs

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/kind"
)

// A changed generateName must be part of a path; more is asked of it where Kubernetes asks more.
func TestGenerateNameOfAnUpdate(t *testing.T) {
	for _, c := range []struct {
		k      *kind.Kind
		prefix string
		want   string
	}{
		{&kind.Kind{}, "good-", ""},
		{&kind.Kind{}, "Bad_", "a lowercase RFC 1123 subdomain"},
		{&kind.Kind{AnyGenerateName: true}, "Bad_", ""},
		{&kind.Kind{Dynamic: true}, "Bad_", ""},
		{&kind.Kind{AnyGenerateName: true}, "a/b", "may not contain '/'"},
	} {
		meta := metav1.ObjectMeta{Name: "x", Namespace: "default", UID: "u", ResourceVersion: "1"}
		old, now := &corev1.Pod{ObjectMeta: meta}, &corev1.Pod{ObjectMeta: meta}
		now.GenerateName = c.prefix
		errs := (&Resource{Kind: c.k}).validateMetaUpdate(now, old)
		text := ""
		if len(errs) > 0 {
			text = errs.ToAggregate().Error()
		}
		if (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%q: refused with %q, want %q", c.prefix, text, c.want)
		}
	}
}
