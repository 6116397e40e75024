package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/yare-project/yare/client"
	clienthttp "github.com/yare-project/yare/client/http"
	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/internal/pki"
)

const (
	// serverRetry is the wait between attempts to reach the server of a cluster that the node belongs to already.
	serverRetry = 2 * time.Second
	// dialTime bounds one attempt.
	dialTime = 10 * time.Second
)

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
	member bool
	api    client.Transport // as the node
}

func (j *joining) run(ctx context.Context) error {
	c, s := j.config, j.stack
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.onStop(func(context.Context) error { end(); return nil })
	// While it starts, the node's life ends with ctx; afterwards with stop.
	defer context.AfterFunc(ctx, end)()
	j.life = life
	if err := s.step("check the host", j.prepare); err != nil {
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

// prepare looks at the machine and makes the data folder this process's own.
func (j *joining) prepare() error {
	if err := j.config.preflightNode(); err != nil {
		return err
	}
	if err := j.config.refuseServerFolder(); err != nil {
		return err
	}
	return j.stack.claim(j.config.DataDir)
}

// file is one of the data folder's keys and certificates.
func (j *joining) file(name string) string { return filepath.Join(j.config.DataDir, "pki", name) }

// introduce gets the certificate as which the node acts, and the transport that shows it.
func (j *joining) introduce(ctx context.Context) error {
	_, err := os.Stat(j.file(pki.NodeClient(j.config.NodeName).Name + ".pem"))
	j.member = err == nil
	var identity *pki.Leaf
	if err := j.patiently(ctx, func() (err error) {
		identity, err = j.openIdentity()
		return err
	}); err != nil {
		return err
	}
	if err := pki.WriteFile(j.file(authorityFile), j.ca, 0o600); err != nil {
		return err
	}
	if j.api, err = j.transportAs(identity); err != nil {
		return err
	}
	j.renew(identity)
	return nil
}

// transportAs reaches the server as the holder of identity. A connection outlives the certificate that it was opened with, and the server refuses what
// has expired: with a new certificate come new connections.
func (j *joining) transportAs(identity *pki.Leaf) (client.Transport, error) {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext)
	var shown atomic.Pointer[tls.Certificate]
	show := func() error {
		own, err := tls.LoadX509KeyPair(identity.Path(), identity.Path())
		if err == nil {
			shown.Store(&own)
			dialer.CloseAll()
		}
		return err
	}
	if err := show(); err != nil {
		return nil, err
	}
	identity.OnRenew(func(*pki.Leaf) {
		if err := show(); err != nil {
			j.config.Log.Error("this node's new certificate cannot be read", "error", err)
		}
	})
	// Not the leaf's own callback: that renews in the midst of a handshake, and so would end the connection that it serves.
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: j.roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return shown.Load(), nil
	}}
	return j.transport(config, dialer.DialContext)
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
		if !j.member || !unreachable(err) || ctx.Err() != nil {
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

// transport reaches the server over connections that dial opens. HTTP/2 pings find out that a server is gone whose machine can no longer say so.
func (j *joining) transport(config *tls.Config, dial func(context.Context, string, string) (net.Conn, error)) (client.Transport, error) {
	return clienthttp.New(&rest.Config{Host: j.url, Transport: &http.Transport{
		TLSClientConfig: config, DialContext: dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTime,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}})
}

// refuseServerFolder spares the containers of a cluster that lives in the data folder: to a node of another cluster they are strangers.
func (c *Config) refuseServerFolder() error {
	if _, err := os.Stat(filepath.Join(c.DataDir, "db")); err == nil {
		return fmt.Errorf("the data folder %s holds a cluster of its own (`yare up`): give another with --data-dir", c.DataDir)
	}
	return nil
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
