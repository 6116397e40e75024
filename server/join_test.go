package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/node/cri/fake"
	"github.com/yare-project/yare/server"
)

// meet tells where the cluster answers, and the pin of its authority.
func (q *quick) meet() (url, pin string) {
	q.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", q.config)
	if err != nil {
		q.Fatal(err)
	}
	certs, err := pki.ParseCertificates(config.CAData)
	if err != nil {
		q.Fatal(err)
	}
	return config.Host, pki.Pin(certs[0])
}

// token makes a join token that ends after so long; it may have ended already.
func (q *quick) token(life time.Duration) jointoken.Token {
	q.Helper()
	_, pin := q.meet()
	token, err := jointoken.New(pin)
	if err != nil {
		q.Fatal(err)
	}
	_, err = q.api.CoreV1().Secrets("kube-system").Create(q.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + token.ID}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": token.ID, "token-secret": token.Secret, "expiration": time.Now().Add(life).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true", "auth-extra-groups": server.Joiners,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		q.Fatal(err)
	}
	return token
}

// guest is a machine that may join: its folder and containers outlive a run.
type guest struct {
	*quick
	dir     string
	name    string
	port    int
	clock   clock.WithTicker
	runtime *fake.Runtime
}

func (q *quick) guest(name string) *guest {
	return &guest{quick: q, dir: q.TempDir(), name: name, port: freePort(q.T), clock: clock.RealClock{}, runtime: fake.New(fake.Config{})}
}

func (g *guest) join(ctx context.Context, url string, token jointoken.Token) (*server.Joined, error) {
	c := &server.Config{
		DataDir: g.dir, NodeName: g.name, NodeIP: netip.MustParseAddr("127.0.0.1"), AgentPort: g.port, Clock: g.clock,
		Log: slog.New(slog.NewTextHandler(logWriter{g.T}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		CRI: func() (internalapi.RuntimeService, internalapi.ImageManagerService) { return g.runtime, g.runtime },
	}
	if err := c.Complete(); err != nil {
		return nil, err
	}
	return server.Join(ctx, c, url, token)
}

// run joins, and returns how to stop.
func (g *guest) run(token jointoken.Token) (stop func()) {
	g.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	url, _ := g.meet()
	node, err := g.join(ctx, url, token)
	if err != nil {
		g.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Wait(life) }()
	return func() {
		g.Helper()
		end()
		if err := <-ended; err != nil {
			g.Errorf("the end: %v", err)
		}
	}
}

// answers checks that the API server reaches the node's own API, whose certificate it must trust.
func (g *guest) answers() {
	g.Helper()
	g.until("the node's API answers through the API server", func(ctx context.Context) error {
		text, err := g.api.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + g.name + "/proxy/healthz").DoRaw(ctx)
		if err == nil && string(text) != "ok" {
			err = fmt.Errorf("it says %q", text)
		}
		return err
	})
}

func (g *guest) identity() []byte {
	g.Helper()
	data, err := os.ReadFile(filepath.Join(g.dir, "pki", "node-client-"+g.name+".pem"))
	if err != nil {
		g.Fatal(err)
	}
	return data
}

func TestANodeJoinsAndComesBackWithoutItsToken(t *testing.T) {
	q := startQuick(t)
	g := q.guest("raft")
	token := q.token(time.Hour)
	stop := g.run(token)
	g.answers()
	first := g.identity()
	stop()
	if err := q.api.CoreV1().Secrets("kube-system").Delete(t.Context(), "bootstrap-token-"+token.ID, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for what, again := range map[string]jointoken.Token{"a worthless token": token, "no token": {}} {
		stop = g.run(again)
		g.answers()
		stop()
		if !bytes.Equal(first, g.identity()) {
			t.Errorf("with %s the node came back as somebody else", what)
		}
	}
}

// later is the real clock, so much ahead; the hourly look at certificates comes when the test says.
type later struct {
	clock.RealClock
	ahead time.Duration
	tick  chan time.Time
}

func (l *later) Now() time.Time { return l.RealClock.Now().Add(l.ahead) }

func (l *later) NewTicker(d time.Duration) clock.Ticker {
	if d == time.Hour && l.tick != nil {
		return byHand{l.tick}
	}
	return l.RealClock.NewTicker(d)
}

type byHand struct{ tick chan time.Time }

func (b byHand) C() <-chan time.Time { return b.tick }
func (b byHand) Stop()               {}

// TestANodeRenewsItsCertificates: both when it starts and while it runs, as itself, long after its token has gone.
func TestANodeRenewsItsCertificates(t *testing.T) {
	q := startQuick(t)
	g := q.guest("raft")
	g.run(q.token(time.Hour))()
	first := g.identity()
	tick := make(chan time.Time)
	g.clock = &later{ahead: 9 * 30 * 24 * time.Hour, tick: tick}
	stop := g.run(jointoken.Token{})
	defer stop()
	second := g.identity()
	if bytes.Equal(first, second) {
		t.Error("a certificate of which a third is left was not renewed at the start")
	}
	g.answers()
	tick <- time.Time{} // the client certificate's or the serving one's
	tick <- time.Time{} // the other's, or the first's again
	g.until("the certificate is renewed while the node runs", func(context.Context) error {
		if bytes.Equal(second, g.identity()) {
			select {
			case tick <- time.Time{}:
			default:
			}
			return errors.New("it is the same")
		}
		return nil
	})
	g.answers()
	list, err := q.api.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for _, r := range list.Items {
		if r.Spec.Username == "system:node:raft" && strings.HasSuffix(r.Spec.SignerName, "client-kubelet") {
			own++
		}
	}
	if own < 2 {
		t.Errorf("%d requests for a client certificate were the node's own, want 2 at least", own)
	}
}

func TestWhyAMachineCannotJoin(t *testing.T) {
	q := startQuick(t)
	url, pin := q.meet()
	good := q.token(time.Hour)
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	defer stranger.Close()
	wrongPin, wrongSecret := good, good
	wrongPin.Pin = "sha256:" + strings.Repeat("0a", 32)
	wrongSecret.Secret = strings.Repeat("x", 16)
	for what, c := range map[string]struct {
		name, url string
		token     jointoken.Token
		want      []string
	}{
		"a wrong pin":              {token: wrongPin, want: []string{pin, wrongPin.Pin, "another cluster"}},
		"a wrong secret":           {token: wrongSecret, want: []string{"does not know this token", "yare token create"}},
		"an expired token":         {token: q.token(-time.Second), want: []string{"has expired", "yare token create"}},
		"an unreachable server":    {url: "https://127.0.0.1:1", token: good, want: []string{"https://127.0.0.1:1", "connection refused", "--server"}},
		"a server that is no Yare": {url: stranger.URL, token: good, want: []string{"no Yare", "404"}},
		"plain HTTP":               {url: "http://127.0.0.1:6443", token: good, want: []string{"--server", "https://"}},
		"no token":                 {want: []string{"--token", "yare token create"}},
		"a name that is taken":     {name: "dinghy", token: good, want: []string{"a node named dinghy already", "--node-name", "kubectl delete node dinghy"}},
	} {
		t.Run(what, func(t *testing.T) {
			name, server := c.name, c.url
			if name == "" {
				name = "raft"
			}
			if server == "" {
				server = url
			}
			g := q.guest(name)
			_, err := g.join(t.Context(), server, c.token)
			if err == nil {
				t.Fatal("it joined")
			}
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), c.token.Secret) && c.token.Secret != "" {
				t.Errorf("the refusal is not one clear line without a secret: %q", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is missing from: %v", w, err)
				}
			}
			t.Log(err)
		})
	}
	if _, err := q.api.CoreV1().Nodes().Get(t.Context(), "raft", metav1.GetOptions{}); err == nil {
		t.Error("a machine that was refused has a Node")
	}
}

func TestOneMachineRunsOneNodeFromAFolder(t *testing.T) {
	q := startQuick(t)
	g := q.guest("raft")
	defer g.run(q.token(time.Hour))()
	url, _ := q.meet()
	other := *g
	other.port = freePort(t)
	if _, err := other.join(t.Context(), url, jointoken.Token{}); err == nil || !strings.Contains(err.Error(), "locked by another Yare") || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a second node from the folder: %v", err)
	}
}

func TestAClusterOfItsOwnIsNoNode(t *testing.T) {
	q := startQuick(t)
	g := q.guest("raft")
	if err := os.Mkdir(filepath.Join(g.dir, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	url, _ := q.meet()
	if _, err := g.join(t.Context(), url, q.token(time.Hour)); err == nil || !strings.Contains(err.Error(), "a cluster of its own") {
		t.Errorf("the folder of another cluster's server: %v", err)
	}
}

// TestAMemberWaitsForItsServer: after a power cut the machines come back in any order.
func TestAMemberWaitsForItsServer(t *testing.T) {
	q := startQuick(t)
	g := q.guest("raft")
	g.run(q.token(time.Hour))()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := g.join(ctx, "https://127.0.0.1:1", jointoken.Token{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without its server a member ended before its time: %v", err)
	}
}
