package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/discovery"
	"github.com/yare-project/yare/apiserver/openapi"
	"github.com/yare-project/yare/kind"
)

// FuzzGate sends whatever a stranger may: no request may be a fault of the server, and the object that it leaves behind must still be readable.
func FuzzGate(f *testing.F) {
	var h *harness
	served := func() ([]*kind.Kind, uint64) {
		return h.server.Registry().Kinds(), uint64(h.server.Registry().Revision())
	}
	h = start(f, func(c *apiserverConfig) {
		c.Discovery, c.OpenAPI = discovery.New(discovery.Config{Kinds: served}), openapi.New(openapi.Config{Kinds: served})
	})
	victims(f, h)
	handler := h.server.Handler()
	victim := configMaps()
	victim.Name = "victim"
	for _, r := range hostile() {
		if len(r.body)+len(r.path) < 4096 {
			f.Add(r.method, r.path, r.body, strings.Join(r.header, "\n"))
		}
	}
	const maps, pod = "/api/v1/namespaces/ns/configmaps", "/api/v1/namespaces/ns/pods/victim"
	for _, s := range [][4]string{
		{"GET", "/", "", ""}, {"GET", "/api", "", "Accept\napplication/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
		{"GET", "/apis", "", "Accept\napplication/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,*/*;q=0.1"},
		{"GET", "/apis/apps", "", "Accept\napplication/yaml"}, {"GET", "/apis/apps/v1", "", ""}, {"GET", "/apis//v1/x", "", ""},
		{"GET", "/openapi/v3", "", ""}, {"GET", "/openapi/v3/api/v1?hash=0", "", "Accept\napplication/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		{"GET", "/openapi/v2", "", "Accept-Encoding\ngzip;q=0"}, {"GET", "/healthz?exclude=a", "", ""}, {"GET", "/readyz/x?verbose", "", ""},
		{"GET", maps + "?limit=1&resourceVersion=0&resourceVersionMatch=Exact", "", ""}, {"GET", maps + "?labelSelector=a%20in%20(b,c),!d", "", "Accept\napplication/json;as=Table;v=v1;g=meta.k8s.io"},
		{"GET", maps + "?fieldSelector=metadata.name%3Dvictim,metadata.namespace!%3Dx", "", "Accept\napplication/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		{"GET", maps + "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0&limit=1", "", ""},
		{"GET", maps + "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9", "", ""},
		{"GET", "/api/v1/watch/namespaces/ns/configmaps/victim?timeoutSeconds=0", "", ""}, {"GET", "/api/v1/namespaces/ns/status", "", ""}, {"GET", "/api/v1/namespaces", "", ""},
		{"PATCH", pod, `{"spec":{"containers":[{"name":"c","image":"j","env":[{"name":"A","$patch":"delete"}]}],"$setElementOrder/containers":[{"name":"c"}]}}`, "Content-Type\napplication/strategic-merge-patch+json"},
		{"PATCH", pod, `{"metadata":{"labels":{"a":null},"managedFields":[]}}`, "Content-Type\napplication/merge-patch+json"},
		{"PATCH", pod, `[{"op":"move","from":"/spec/containers/0","path":"/spec/containers/-"},{"op":"test","path":"","value":{}}]`, "Content-Type\napplication/json-patch+json"},
		{"PATCH", pod + "?fieldManager=m&force=true", `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c","ports":[{"containerPort":80},{"containerPort":80}]}]}}`, "Content-Type\napplication/apply-patch+yaml"},
		{"PATCH", pod + "/status?fieldManager=m", "apiVersion: v1\nkind: Pod\nstatus: {conditions: [{type: A}, {type: A}]}", "Content-Type\napplication/apply-patch+yaml"},
		{"PATCH", pod, `[{"op":"test","path":""}]`, "Content-Type\napplication/json-patch+json"}, {"WATCH", pod, "", ""},
		{"PATCH", "/apis/apps/v1/namespaces/ns/deployments/d/scale", `{"spec":{"replicas":1e3}}`, "Content-Type\napplication/merge-patch+json"},
		{"PUT", "/api/v1/namespaces/ns/configmaps/victim?dryRun=All&fieldValidation=Strict", `{"metadata":{"name":"victim","resourceVersion":"x"},"data":{"a":"b"},"data":{}}`, ""},
		{"POST", maps, `{"metadata":{"generateName":"g-","creationTimestamp":"0000-01-01T00:00:00Z","managedFields":[{"fieldsType":"FieldsV1","fieldsV1":{"f:data":{"k:{\"a\"":{}}}}]}}`, ""},
		{"POST", "/api/v1/namespaces/ns/pods/victim/binding", `{"target":{"name":"n"}}`, ""}, {"POST", maps, "k8s\x00\x0a\x04\x0a\x02v1", "Content-Type\napplication/vnd.kubernetes.protobuf"},
		{"DELETE", maps + "?propagationPolicy=Orphan&gracePeriodSeconds=-1", `{"kind":"DeleteOptions","preconditions":{"uid":"x"},"orphanDependents":true}`, ""},
		{"GET", pod, "", "Connection\nUpgrade\nUpgrade\nwebsocket\nSec-WebSocket-Key\nAAAAAAAAAAAAAAAAAAAAAA==\nSec-WebSocket-Version\n13\nSec-WebSocket-Protocol\nbase64url.bearer.authorization.k8s.io.xx"},
		{"GET", maps + "?watch=1&timeoutSeconds=1", "", "Connection\nUpgrade\nUpgrade\nSPDY/3.1\nX-Stream-Protocol-Version\nv4.channel.k8s.io"},
		{"GET", maps, "", "Impersonate-User\na\nX-Remote-User\nb\nX-Forwarded-For\n::1%lo, 10.0.0.1\nForwarded\nfor=\"[\""}, {"OPTIONS", "/api/../healthz", "", ""}, {"\x00", "//", "", ""},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	f.Fuzz(func(t *testing.T, method, path, body, headers string) {
		if strings.Contains(path, "watch") { // would last
			path += "&timeoutSeconds=1&resourceVersion=999999999999"
			if strings.Contains(path, "timeoutSeconds=0") || !strings.Contains(path, "?") {
				return
			}
		}
		w := request{method: method, path: path, body: body, header: pairs(headers)}.send(handler)
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("%q %q %q %q: 500", method, path, body, headers)
		}
		got, err := h.local().Get(t.Context(), victim, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = h.local().Create(t.Context(), configMaps(), configMap("victim", nil), metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("after %q %q %q: %v", method, path, body, err)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Fatal(err)
		}
	})
}

func pairs(headers string) []string {
	out := strings.Split(headers, "\n")
	if headers == "" || len(out)%2 != 0 {
		return nil
	}
	for i := 0; i < len(out); i += 2 {
		if out[i] == "" {
			return nil
		}
	}
	return out
}
