package kinds_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/discovery"
	"github.com/yare-project/yare/apiserver/openapi"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/store/mem"
)

func TestTry(t *testing.T) {
	var s *apiserver.Server
	src := func() ([]*kind.Kind, uint64) { r := s.Registry(); return r.Kinds(), uint64(r.Revision()) }
	cfg := apiserver.Config{Store: mem.New(mem.Config{CheckImmutable: true}), Groups: kinds.Groups(),
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "t", Groups: []string{"system:masters"}}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) { return authorizer.DecisionAllow, "", nil }),
		Discovery: discovery.New(discovery.Config{Kinds: src}),
		OpenAPI: openapi.New(openapi.Config{Kinds: src, Definitions: kinds.Definitions(), Title: "Kubernetes", Version: "v1.36.2+yare"}),
	}
	var err error
	s, err = apiserver.New(cfg)
	if err != nil { t.Fatal(err) }
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	script, _ := os.ReadFile("/tmp/try/script.sh")
	c := exec.Command("bash", "-c", string(script))
	c.Env = append(os.Environ(), "S="+srv.URL, "HOME=/tmp/try/home")
	out, err := c.CombinedOutput()
	t.Logf("%v\n%s", err, out)
	s.Drain()
}
