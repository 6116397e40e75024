package crd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/yare-project/yare/apiserver/cost"
)

// TestHostileDefinitionsCostWhatTheySend posts schemas that make a careless server work far more than they are long: none is a fault, and none makes it
// allocate beyond a bound for each byte sent. (What compiled rules may cost is limited by their kind.)
func TestHostileDefinitionsCostWhatTheySend(t *testing.T) {
	many := func(n int, f func(i int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = f(i)
		}
		return strings.Join(parts, ",")
	}
	object := func(properties string) string {
		return `{"type":"object","properties":{"spec":{"type":"object","properties":{` + properties + `}}}}`
	}
	c := startFor(t)
	handler := c.gate.Handler()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30))
	for name, schema := range map[string]string{
		"deep":             strings.Repeat(`{"type":"object","properties":{"a":`, 20000) + `{"type":"string"}` + strings.Repeat(`}}`, 20000),
		"deep lists":       strings.Repeat(`{"type":"array","items":`, 30000) + `{"type":"string"}` + strings.Repeat(`}`, 30000),
		"wide":             object(many(5000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string"}`, i) })),
		"many choices":     object(`"a":{"type":"string","enum":[` + many(30000, func(i int) string { return fmt.Sprintf(`"%d"`, i) }) + `]}`),
		"repeated pattern": object(`"a":{"type":"string","pattern":"` + strings.Repeat("(a{1,10}", 300) + strings.Repeat("){1,10}", 300) + `"}`),
		"long pattern":     object(`"a":{"type":"string","pattern":"` + strings.Repeat("[a-z]", 20000) + `"}`),
		"large default":    object(`"a":{"type":"array","items":{"type":"object"},"default":[` + many(20000, func(int) string { return `{}` }) + `]}`),
		"deep default":     object(`"a":{"type":"array","x-kubernetes-preserve-unknown-fields":true,"items":{"x-kubernetes-preserve-unknown-fields":true},"default":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`),
		"brackets":         object(`"a":{"type":"string","x-kubernetes-validations":[{"rule":"` + strings.Repeat("(", 20000) + "true" + strings.Repeat(")", 20000) + `"}]}`),
		"nested loops":     object(`"a":{"type":"array","items":{"type":"string"},"x-kubernetes-validations":[{"rule":"` + strings.Repeat("self.all(x, ", 10) + "true" + strings.Repeat(")", 10) + `"}]}`),
		"faults":           object(many(3000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"x"}`, i) })),
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"hosts.hostile.example.com"},"spec":{"group":"hostile.example.com","scope":"Namespaced",
				"names":{"plural":"hosts","kind":"Host"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
			req := httptest.NewRequest("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			w, spent := cost.Of(handler, req)
			made := spent.Made
			t.Logf("%d: %d bytes sent, %d made (%.0f a byte)", w.Code, len(body), made, float64(made)/float64(len(body)))
			if made > 600*int64(len(body))+32<<20 {
				t.Errorf("%d bytes made the server allocate %d", len(body), made)
			}
			if w.Code == http.StatusInternalServerError {
				t.Error("a fault")
			}
		})
	}
}
