package server

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/client"
	clienthttp "github.com/yare-project/yare/client/http"
	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/internal/resource"
)

const (
	// maxCA bounds what is read of a server that is not known yet.
	maxCA = 64 << 10
	// answerTime is how long a node waits for a certificate.
	answerTime = time.Minute
)

// Join runs a node of the API server at url until ctx ends. The token's pin says which authority the server must have: nobody in between can
// pretend to be it. After the first time, the node's own certificate is enough, and the token may expire.
func Join(ctx context.Context, c *Config, url string, token jointoken.Token) error {
	j := &joining{config: c, url: strings.TrimSuffix(url, "/"), token: token}
	s := newStack(c)
	err := j.run(ctx, s)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	return errors.Join(err, s.stop(stop))
}

type joining struct {
	config *Config
	url    string
	token  jointoken.Token
	ca     []byte
	roots  *x509.CertPool
}

func (j *joining) run(ctx context.Context, s *stack) error {
	c := j.config
	if err := s.step("check the host", c.preflightNode); err != nil {
		return errors.Unwrap(err)
	}
	if err := s.step("meet the server", func() error { return j.meet(ctx) }); err != nil {
		return err
	}
	var identity *pki.Leaf
	if err := s.step("get a certificate", func() (err error) {
		identity, err = j.identity(ctx)
		return err
	}); err != nil {
		return err
	}
	transport, err := clienthttp.New(&rest.Config{Host: j.url, Transport: &http.Transport{TLSClientConfig: pki.ClientTLS(j.roots, identity), ForceAttemptHTTP2: true}})
	if err != nil {
		return err
	}
	shared := client.NewCaches(client.CachesConfig{Transport: transport, Clock: c.Clock, Log: c.Log})
	s.run("caches", func(ctx context.Context) error { shared.Run(ctx); return nil })
	_, err = startNode(ctx, c, s, prometheus.NewRegistry(), home{
		transport: transport, shared: shared, clientCA: j.roots,
		serving: func(ctx context.Context) (*pki.Leaf, error) { return j.serving(ctx, transport) },
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// meet fetches the server's authority over a connection that is not trusted yet, and holds it against the token's pin.
func (j *joining) meet(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url+"/cacerts", nil)
	if err != nil || request.URL.Scheme != "https" {
		return fmt.Errorf("--server %q is no https URL", j.url)
	}
	stranger := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the pin below decides
	answer, err := stranger.Do(request)
	if err != nil {
		return fmt.Errorf("the server does not answer: %w; is --server right, and the port open?", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxCA))
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server at %s is no Yare: %s for /cacerts", j.url, answer.Status)
	}
	if j.ca, err = pki.CheckPin(data, j.token.Pin); err != nil {
		return err
	}
	j.roots = x509.NewCertPool()
	j.roots.AppendCertsFromPEM(j.ca)
	return nil
}

func (j *joining) leaf(spec pki.LeafSpec, issuer pki.Issuer) (*pki.Leaf, error) {
	c := j.config
	return pki.OpenLeaf(pki.LeafConfig{Config: pki.Config{Dir: filepath.Join(c.DataDir, "pki"), Clock: c.Clock, Log: c.Log}, Spec: spec, Issuer: issuer, Roots: j.roots})
}

// identity is the certificate as which the node acts: kept from an earlier time, or asked for with the token.
func (j *joining) identity(ctx context.Context) (*pki.Leaf, error) {
	transport, err := clienthttp.New(&rest.Config{Host: j.url, BearerToken: j.token.Bearer(), TLSClientConfig: rest.TLSClientConfig{CAData: j.ca}})
	if err != nil {
		return nil, err
	}
	return j.leaf(pki.NodeClient(j.config.NodeName), &requester{ctx: ctx, api: transport, signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth})
}

// serving is the certificate of the node's API, asked for as the node once its Node object says which addresses are its own.
func (j *joining) serving(ctx context.Context, transport client.Transport) (*pki.Leaf, error) {
	if err := j.waitForNode(ctx, transport); err != nil {
		return nil, err
	}
	return j.leaf(j.config.nodeServing(), &requester{ctx: ctx, api: transport, signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth})
}

func (j *joining) waitForNode(ctx context.Context, transport client.Transport) error {
	ref := resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes")}
	return until(ctx, transport, ref, j.config.NodeName, func(o client.Object) (bool, error) {
		node, ok := o.(*corev1.Node)
		return ok && len(node.Status.Addresses) > 0, nil
	})
}

// requester has certificates issued by the API server's signers.
type requester struct {
	ctx    context.Context
	api    client.Transport
	signer string
	usage  certificatesv1.KeyUsage
}

// Issue posts a CertificateSigningRequest and waits for the certificate.
func (r *requester) Issue(spec pki.LeafSpec, key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: spec.User, Organization: spec.Groups}, DNSNames: spec.Hosts, IPAddresses: spec.IPs,
	}, key)
	if err != nil {
		return nil, err
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: r.signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, r.usage},
		},
	}
	requests := client.Of[*certificatesv1.CertificateSigningRequest](r.api)
	request, err = requests.Create(r.ctx, request)
	if err != nil {
		return nil, fmt.Errorf("ask for a certificate: %w", err)
	}
	ctx, cancel := context.WithTimeout(r.ctx, answerTime)
	defer cancel()
	var certificate []byte
	ref := resource.Ref{GroupVersionResource: certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")}
	err = until(ctx, r.api, ref, request.Name, func(o client.Object) (bool, error) {
		csr, ok := o.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return false, nil
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("the certificate was refused: %s: %s", c.Reason, c.Message)
			}
		}
		certificate = bytes.Clone(csr.Status.Certificate)
		return len(certificate) > 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("nobody answered the certificate request %s within %s: see `kubectl get csr`, or approve it with `kubectl certificate approve %s`", request.Name, answerTime, request.Name)
	}
	return certificate, err
}

// until watches one object until f is content with it.
func until(ctx context.Context, api client.Transport, ref resource.Ref, name string, f func(client.Object) (bool, error)) error {
	initial := true
	events, err := api.Watch(ctx, ref, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch of %s %s ended", ref.Resource, name)
			}
			o, ok := e.Object.(client.Object)
			if !ok || e.Type != watch.Added && e.Type != watch.Modified {
				continue
			}
			if done, err := f(o); done || err != nil {
				return err
			}
		}
	}
}

// preflightNode is preflight for a machine that runs no API server.
func (c *Config) preflightNode() error {
	if err := c.checkClock(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("cannot make the data folder %s: %w; give another with --data-dir", c.DataDir, plain(err))
	}
	return c.checkNode()
}
