package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/discovery"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/store/mem"
)

func main() {
	t := time.Now()
	var s *apiserver.Server
	s, err := apiserver.New(apiserver.Config{Store: mem.New(mem.Config{}), Groups: kinds.Groups(), Settings: kind.Settings{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}, NodePortMin: 30000, NodePortMax: 32767, EventTTL: time.Hour},
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "a"}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}), Discovery: discovery.New(discovery.Config{Kinds: func() ([]*kind.Kind, uint64) { return s.Registry().Kinds(), uint64(s.Registry().Revision()) }})})
	if err != nil {
		panic(err)
	}
	fmt.Println("new", time.Since(t), len(s.Registry().Kinds()))
	t = time.Now()
	go s.Run(context.Background())
	ln, _ := net.Listen("tcp", "127.0.0.1:18099")
	time.Sleep(time.Second)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	fmt.Println("heap MiB", m.HeapAlloc>>20, m.Sys>>20)
	fmt.Println(s.Serve(context.Background(), ln, nil))
}
