package webhook

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// FuzzAnswer reads what a webhook answers: in v1 only an answer to this very question counts, and a validating webhook has no patch, in either version.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}`, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"W10="}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"v","allowed":true}}`, `{"response":{"allowed":true}}`, `{"response":null}`, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"allowed":false,"status":{"code":418,"message":"m"},"warnings":["w"],"patch":"W10="}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","patchType":"X","patch":"W10="}}`, `[]`, ``, `{"response":{"uid":"u","allowed":true,"auditAnnotations":{"a/b":"c"}}}`,
	} {
		for version := range 4 {
			f.Add([]byte(s), version&1 == 0, version&2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, v1, mutating bool) {
		q := &question{uid: types.UID("u"), version: "v1beta1"}
		if v1 {
			q.version = "v1"
		}
		a, err := q.read(body, mutating)
		if err != nil {
			return
		}
		if !mutating && len(a.patch) > 0 {
			t.Errorf("a validating webhook's patch was taken: %q", body)
		}
		if v1 && !strings.Contains(strings.ToLower(string(body)), "admission.k8s.io") && !strings.Contains(string(body), `\u`) {
			t.Errorf("an answer of no version was taken for one of v1: %q", body)
		}
	})
}
