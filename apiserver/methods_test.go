package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A method that is spelled as a verb is none: on an object's path it would be allowed for that object and carried out on all.
func TestMethodsAreNoVerbs(t *testing.T) {
	h := start(t)
	must(h.jsonClient().CoreV1().ConfigMaps("ns").Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	must(h.jsonClient().CoreV1().ConfigMaps("ns").Create(within(t), configMap("b", nil), metav1.CreateOptions{}))
	for _, method := range []string{"LIST", "WATCH", "DELETECOLLECTION", "UPDATE", "CREATE", "list", "get", "OPTIONS", "TRACE"} {
		if a := h.do(method, "/api/v1/namespaces/ns/configmaps/a", ""); a.code != http.StatusMethodNotAllowed || strings.Contains(a.body, `"b"`) {
			t.Errorf("%s: %d %s", method, a.code, a.body)
		}
	}
	if list := must(h.jsonClient().CoreV1().ConfigMaps("ns").List(within(t), metav1.ListOptions{})); len(list.Items) != 2 {
		t.Errorf("%d objects are left", len(list.Items))
	}
}
