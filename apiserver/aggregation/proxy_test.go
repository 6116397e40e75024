package aggregation

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Nothing that a client sends may say who it is, however it is spelled.
func TestIdentityIsTheServersWord(t *testing.T) {
	a := New(Config{Identity: Identity{Names: []string{"X-Proxy-User"}, Prefixes: []string{"X-Proxy-Extra-"}}})
	in := http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer secret"}, "Impersonate-User": {"root"}, "Impersonate-Extra-A": {"b"},
		"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"0"}, "X-Remote-Extra-Scopes": {"all"}, "X-Remote-Other": {"x"},
		"x-remote-group": {"system:masters"}, "X-REMOTE-EXTRA-b": {"c"}, "X-Proxy-User": {"root"}, "x-proxy-extra-A": {"b"}}
	req := &http.Request{Header: in}
	a.identify(req, &user.DefaultInfo{Name: "jane", Groups: []string{"devs", "ops"}, Extra: map[string][]string{"Example.com/Dept": {"x", "y"}}})
	want := http.Header{"Accept": {"application/json"}, "X-Remote-User": {"jane"}, "X-Remote-Group": {"devs", "ops"}, "X-Remote-Extra-Example.com%2fdept": {"x", "y"}}
	if diff := cmp.Diff(want, req.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestAnswersAreTidied(t *testing.T) {
	own := http.Header{"Cache-Control": {"no-cache, private"}, "Audit-Id": {"ours"}}
	r := &http.Response{StatusCode: 200, Header: http.Header{"Cache-Control": {"public"}, "Audit-Id": {"theirs"}, "Location": {"/x"}}, Body: http.NoBody}
	tidy(own, r)
	if diff := cmp.Diff([]http.Header{{"Audit-Id": {"ours"}}, {"Cache-Control": {"public"}, "Location": {"/x"}}}, []http.Header{own, r.Header}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r = &http.Response{StatusCode: 307, Header: http.Header{"Location": {"https://evil.example.com/"}}, Body: io.NopCloser(strings.NewReader("go there"))}
	tidy(http.Header{}, r)
	body, err := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusBadGateway || r.Header.Get("Location") != "" || string(body) != noRedirects || err != nil {
		t.Errorf("a redirect became %+v with %q, %v", r, body, err)
	}
}
