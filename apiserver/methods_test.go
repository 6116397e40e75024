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

// What is asked of a path that is not there is not found, whatever the method; what is there says which methods it does not know.
func TestPathsAndMethodsAreRefusedAsClientsKnowIt(t *testing.T) {
	h := start(t)
	must(h.jsonClient().CoreV1().ConfigMaps("ns").Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	for _, c := range []struct {
		method, path, body string
		code               int
		text               string
	}{
		{"PUT", "/api/v1/namespaces/ns/nodes", `{}`, http.StatusNotFound, "the server could not find the requested resource"},
		{"POST", "/api/v1/configmaps/a", `{}`, http.StatusNotFound, "the server could not find the requested resource"},
		{"PUT", "/api/v1/configmaps", `{}`, http.StatusMethodNotAllowed, "the server does not allow this method on the requested resource"},
		{"DELETE", "/api/v1/watch/namespaces/ns/configmaps/a", "", http.StatusMethodNotAllowed, "the server does not allow this method on the requested resource"},
		{"POST", "/api/v1/watch/namespaces/ns/configmaps", `{"metadata":{"name":"b"}}`, http.StatusMethodNotAllowed, "the server does not allow this method on the requested resource"},
		{"GET", "/api/v1/configmaps?resourceVersion=abc", "", http.StatusBadRequest, `invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax`},
		{"GET", "/api/v1/configmaps?resourceVersion=%2B1", "", http.StatusBadRequest, "invalid resource version"},
		{"POST", "/version", "", http.StatusMethodNotAllowed, "the server does not allow this method on the requested resource"},
		{"GET", "/api/v1/namespaces/ns/configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "", http.StatusUnprocessableEntity, "resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"GET", "/api/v1/namespaces/ns/configmaps?sendInitialEvents=true", "", http.StatusUnprocessableEntity, "sendInitialEvents is forbidden for list"},
	} {
		if a := h.do(c.method, c.path, c.body); a.code != c.code || !strings.Contains(a.body, c.text) {
			t.Errorf("%s %s: want %d with %q, got %d %s", c.method, c.path, c.code, c.text, a.code, a.body)
		}
	}
}

// A configuration that makes an object says its name; one for an object that is there need not.
func TestApplyThatCreatesSaysTheName(t *testing.T) {
	h := start(t)
	const path, config = "/api/v1/namespaces/ns/configmaps/a?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v"}}`
	a := h.do("PATCH", path, config, "Content-Type", "application/apply-patch+yaml")
	if want := "the name of the object (a based on URL) was undeterminable: name must be provided"; a.code != http.StatusBadRequest || !strings.Contains(a.body, want) {
		t.Fatalf("want 400 with %q, got %d %s", want, a.code, a.body)
	}
	must(h.jsonClient().CoreV1().ConfigMaps("ns").Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	if a := h.do("PATCH", path, config, "Content-Type", "application/apply-patch+yaml"); a.code != http.StatusOK {
		t.Errorf("to an object that is there: %d %s", a.code, a.body)
	}
}
