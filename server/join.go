package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/yare-project/yare/client"
	clienthttp "github.com/yare-project/yare/client/http"
	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/internal/pki"
)

const (
	// maxCA bounds what is read of a server that is not known yet.
	maxCA = 64 << 10
	// serverRetry is the wait between attempts to reach the server of a cluster that the node belongs to already.
	serverRetry = 2 * time.Second
	// dialTime bounds one attempt.
	dialTime = 10 * time.Second
)

// authorityFile, in the data folder's pki, is the authority of the cluster that the node joined.
const authorityFile = "cluster-ca.pem"

// Joined is a node of a server elsewhere, in this process.
type Joined struct {
	stack *stack
}

// Join starts a node of the API server at server and returns when the node is ready. The token's pin says which authority the server must
// have: nobody in between can pretend to be it. After the first time the node's own certificate is enough: the token may have expired, or be zero. c's
// networks, DNS and domain are replaced by the cluster's. What was started is stopped again if a later part fails.
func Join(ctx context.Context, c *Config, server string, token jointoken.Token) (*Joined, error) {
	j := &joining{config: c, url: strings.TrimSuffix(server, "/"), token: token, stack: newStack(c)}
	err := j.run(ctx)
	if err == nil {
		return &Joined{stack: j.stack}, nil
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	return nil, errors.Join(err, j.stack.stop(stop))
}

// Wait keeps running until ctx ends or a part fails, then stops everything in reverse order. Containers keep running.
func (n *Joined) Wait(ctx context.Context) error { return n.stack.wait(ctx) }

type joining struct {
	config *Config
	url    string
	token  jointoken.Token // zero: the node relies on what it kept
	stack  *stack
	life   context.Context // ends when the node stops

	ca    []byte
	roots *x509.CertPool
	// member says that the node has been in the cluster before.
	member   bool
	identity *pki.Leaf
	api      client.Transport // as the node
}

func (j *joining) run(ctx context.Context) error {
	c, s := j.config, j.stack
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.onStop(func(context.Context) error { end(); return nil })
	// While it starts, the node's life ends with ctx; afterwards with stop.
	defer context.AfterFunc(ctx, end)()
	j.life = life
	if err := s.step("check the host", c.preflightNode); err != nil {
		return errors.Unwrap(err) // the message stands for itself
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"meet the server", j.meet},
		{"get a certificate", j.introduce},
		{"learn the cluster's networks", j.learn},
	} {
		if err := s.step(step.name, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	shared := client.NewCaches(client.CachesConfig{Transport: j.api, Clock: c.Clock, Log: c.Log})
	s.run("caches", func(ctx context.Context) error { shared.Run(ctx); return nil })
	_, err := startNode(ctx, c, s, prometheus.NewRegistry(), home{transport: j.api, shared: shared, clientCA: j.roots, serving: j.serving})
	return err
}

// meet finds out which authority the server must have: the one that the node kept, or the server's own if it is what the token pins.
func (j *joining) meet(ctx context.Context) error {
	if err := j.stack.claim(j.config.DataDir); err != nil {
		return err
	}
	if u, err := url.Parse(j.url); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--server %q is no URL of an API server: write it as https://host:6443", j.url)
	}
	path := filepath.Join(j.config.DataDir, "pki", authorityFile)
	kept, err := os.ReadFile(path)
	switch {
	case err == nil:
		return j.trustKept(path, kept)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("cannot read %s: %w", path, plain(err))
	case j.token == jointoken.Token{}:
		return errors.New("this machine has not joined a cluster yet: give --token, as `yare token create` prints it on the server")
	}
	data, err := j.fetchAuthority(ctx)
	if err != nil {
		return err
	}
	if j.ca, err = pki.CheckPin(data, j.token.Pin); err != nil {
		return withoutPrefix(err)
	}
	j.trust()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return pki.WriteFile(path, j.ca, 0o600)
}

// trustKept takes the authority of an earlier run, if the token is not another cluster's.
func (j *joining) trustKept(path string, kept []byte) error {
	var err error
	if j.ca = kept; j.token.Pin != "" {
		if j.ca, err = pki.CheckPin(kept, j.token.Pin); err != nil {
			return fmt.Errorf("the data folder %s belongs to another cluster than the token: give another --data-dir, or leave that cluster with `yare down --purge --data-dir %[1]s` first", j.config.DataDir)
		}
	}
	certs, err := pki.ParseCertificates(j.ca)
	if err != nil || len(certs) == 0 {
		return fmt.Errorf("%s is damaged: remove it, and give --token", path)
	}
	j.trust()
	return nil
}

func (j *joining) trust() {
	j.roots = x509.NewCertPool()
	j.roots.AppendCertsFromPEM(j.ca)
}

// fetchAuthority asks for the server's authority over a connection that is not trusted yet.
func (j *joining) fetchAuthority(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url+"/cacerts", nil)
	if err != nil {
		return nil, err
	}
	stranger := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the pin decides
	defer stranger.CloseIdleConnections()
	answer, err := (&http.Client{Timeout: dialTime, Transport: stranger}).Do(request)
	if err != nil {
		return nil, j.explain(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxCA))
	if err != nil {
		return nil, j.explain(err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s is no Yare server: it answers %q for /cacerts; is --server right?", j.url, answer.Status)
	}
	return data, nil
}

// introduce gets the certificate as which the node acts, and the transport that shows it.
func (j *joining) introduce(ctx context.Context) error {
	path := filepath.Join(j.config.DataDir, "pki", pki.NodeClient(j.config.NodeName).Name+".pem")
	_, err := os.Stat(path)
	j.member = err == nil
	if err := j.patiently(ctx, func() (err error) {
		j.identity, err = j.openIdentity()
		return err
	}); err != nil {
		return err
	}
	// A connection outlives the certificate that it was opened with, and the server refuses what has expired: new certificate, new connections.
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext)
	j.identity.OnRenew(func(*pki.Leaf) { dialer.CloseAll() })
	if j.api, err = j.transport(pki.ClientTLS(j.roots, j.identity), dialer.DialContext); err != nil {
		return err
	}
	j.renew(j.identity)
	if j.member {
		return nil
	}
	if err := j.refuseDouble(ctx); err != nil {
		return errors.Join(err, remove(path))
	}
	return nil
}

// refuseDouble refuses to take the name of a node that lives.
func (j *joining) refuseDouble(ctx context.Context) error {
	name := j.config.NodeName
	node, err := client.Of[*corev1.Node](j.api).Get(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return j.explain(err)
	}
	if !isReady(node) {
		return nil
	}
	return fmt.Errorf("the cluster has a node named %s already, which is alive: give another --node-name, or, if this machine takes its place, remove it first with `kubectl delete node %[1]s`", name)
}

func (j *joining) learn(ctx context.Context) error {
	return j.patiently(ctx, func() error { return j.config.learnSettings(ctx, j.api) })
}

// patiently tries f again as long as the server cannot be reached, if the node is in the cluster already: after a power cut the machines come back in
// any order. A stranger is told at once.
func (j *joining) patiently(ctx context.Context, f func() error) error {
	level := slog.LevelWarn
	for {
		err := f()
		if err == nil {
			return nil
		}
		var dial *net.OpError
		if !j.member || !errors.As(err, &dial) || ctx.Err() != nil {
			return j.explain(err)
		}
		j.config.Log.Log(ctx, level, "waiting for the server", "server", j.url, "error", err)
		level = slog.LevelDebug
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-j.config.Clock.After(serverRetry):
		}
	}
}

// explain makes one clear line of what kept the node from its server.
func (j *joining) explain(err error) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused
	}
	var name x509.HostnameError
	if errors.As(err, &name) {
		return fmt.Errorf("the server's certificate is not for %s: start the server with --tls-san %[1]s, or give another --server", name.Host)
	}
	var dial *net.OpError
	var slow net.Error
	if errors.As(err, &dial) || errors.As(err, &slow) && slow.Timeout() {
		var request *url.Error
		if errors.As(err, &request) {
			err = request.Err
		}
		return fmt.Errorf("the server at %s cannot be reached: %w; is --server right, does the server run, and is the port open?", j.url, err)
	}
	return withoutPrefix(err)
}

// withoutPrefix takes off the name of a package of which the user knows nothing.
func withoutPrefix(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), "pki: "); ok {
		return errors.New(text)
	}
	return err
}

// transport reaches the server over connections that dial opens. HTTP/2 pings find out that a server is gone whose machine can no longer say so.
func (j *joining) transport(config *tls.Config, dial func(context.Context, string, string) (net.Conn, error)) (client.Transport, error) {
	return clienthttp.New(&rest.Config{Host: j.url, Transport: &http.Transport{
		TLSClientConfig: config, DialContext: dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTime,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}})
}

// preflightNode is preflight for a machine that runs no API server.
func (c *Config) preflightNode() error {
	if err := pki.CheckClock(c.Clock.Now()); err != nil {
		return err
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("cannot make the data folder %s: %w; give another with --data-dir", c.DataDir, plain(err))
	}
	if c.CRI != nil {
		return nil
	}
	return c.checkNode()
}
