package openapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver/openapi"
	"github.com/yare-project/yare/kind"
)

func squeeze(text string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return out.Bytes()
}

// What other servers serve is in both documents; of two definitions with one name, both are kept.
func TestDocumentsOfOthers(t *testing.T) {
	remote := []openapi.Remote{{GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}, Hash: "AB", V3: squeeze(`{"openapi":"3.0.0","info":{"title":"theirs","version":"1"},"paths":{}}`),
		V2: squeeze(`{"swagger":"2.0","info":{"title":"theirs","version":"1"},"paths":{"/apis/example.com/v1/things":{"get":{"responses":{"200":{"description":"OK",
			"schema":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Status"}}}}}},"definitions":{"io.k8s.apimachinery.pkg.apis.meta.v1.Status":{"type":"string","description":"theirs"}}}`)}}
	known := uint64(1)
	h := openapi.New(openapi.Config{Kinds: func() ([]*kind.Kind, uint64) { return builtIn(), 1 }, Title: "Ours", Version: "v1",
		Remote: func() ([]openapi.Remote, uint64) { return remote, known }})
	read := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	_, index := read("/openapi/v3")
	if !strings.Contains(index, `"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/example.com/v1?hash=AB"}`) {
		t.Errorf("index: %s", index)
	}
	if code, body := read("/openapi/v3/apis/example.com/v1?hash=AB"); code != 200 || !strings.Contains(body, `"title":"theirs"`) {
		t.Errorf("v3: %d %s", code, body)
	}
	var doc struct {
		Info        struct{ Title string }
		Paths       map[string]json.RawMessage
		Definitions map[string]struct{ Description string }
	}
	_, body := read("/openapi/v2")
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	const status = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
	things := string(doc.Paths["/apis/example.com/v1/things"])
	if doc.Info.Title != "Ours" || len(doc.Paths) < 2 || !strings.Contains(things, status+"_v2") || doc.Definitions[status].Description == "theirs" || doc.Definitions[status+"_v2"].Description != "theirs" {
		t.Errorf("v2: %+v, %s", doc.Info, things)
	}
	remote, known = nil, 2
	if _, body := read("/openapi/v2"); strings.Contains(body, "theirs") {
		t.Error("v2 keeps what is gone")
	}
	if code, _ := read("/openapi/v3/apis/example.com/v1"); code != 404 {
		t.Errorf("v3 of what is gone: %d", code)
	}
}
