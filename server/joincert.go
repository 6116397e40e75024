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
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// answerTime is how long a node waits for a certificate.
	answerTime = time.Minute
	// renewEvery is how often a node looks whether its certificates are due; they are for months before they end.
	renewEvery = time.Hour
)

// refusal is the server's no to a node that asks for a certificate.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func (j *joining) leaf(spec pki.LeafSpec, issuer pki.Issuer) (*pki.Leaf, error) {
	c := j.config
	return pki.OpenLeaf(pki.LeafConfig{Config: pki.Config{Dir: filepath.Join(c.DataDir, "pki"), Clock: c.Clock, Log: c.Log}, Spec: spec, Issuer: issuer, Roots: j.roots})
}

// openIdentity is the certificate as which the node acts: kept from an earlier time, or asked for with the token.
func (j *joining) openIdentity() (*pki.Leaf, error) {
	spec := pki.NodeClient(j.config.NodeName)
	return j.leaf(spec, &requester{ctx: j.life, api: func() (client.Transport, error) { return j.asker(spec) },
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth})
}

// asker is as whom the node asks for its identity: as itself, while the certificate that it has is good, else as the token's holder. The
// certificate is read from its file: the leaf itself is locked while it is renewed.
func (j *joining) asker(spec pki.LeafSpec) (client.Transport, error) {
	path := j.file(spec.Name + ".pem")
	if own, err := tls.LoadX509KeyPair(path, path); err == nil && j.good(own) {
		return j.transport(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: j.roots, Certificates: []tls.Certificate{own}}, (&net.Dialer{Timeout: dialTime}).DialContext)
	}
	if j.token == (jointoken.Token{}) {
		return nil, &refusal{fmt.Sprintf("this node's certificate %s is missing or has expired: give --token, as `yare token create` prints it on the server", path)}
	}
	return clienthttp.New(&rest.Config{Host: j.url, BearerToken: j.token.Bearer(), Timeout: answerTime, TLSClientConfig: rest.TLSClientConfig{CAData: j.ca}})
}

func (j *joining) good(own tls.Certificate) bool {
	_, err := own.Leaf.Verify(x509.VerifyOptions{Roots: j.roots, CurrentTime: j.config.Clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// serving is the certificate of the node's API, asked for as the node once its Node object says that the address is its own.
func (j *joining) serving(ctx context.Context) (*pki.Leaf, error) {
	if err := j.waitForAddress(ctx); err != nil {
		return nil, err
	}
	leaf, err := j.leaf(j.config.nodeServing(), &requester{ctx: j.life, api: func() (client.Transport, error) { return j.api, nil },
		signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth})
	if err != nil {
		return nil, j.explain(err)
	}
	j.renew(leaf)
	return leaf, nil
}

func (j *joining) waitForAddress(ctx context.Context) error {
	ref := resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes")}
	own := j.config.NodeIP.String()
	return until(ctx, j.api, ref, j.config.NodeName, func(o client.Object) (bool, error) {
		node, ok := o.(*corev1.Node)
		return ok && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == own }), nil
	})
}

// renew keeps a certificate from ending. It warns for as long as a renewal fails and the old one is good.
func (j *joining) renew(leaf *pki.Leaf) {
	j.stack.run("renewal of "+filepath.Base(leaf.Path()), func(ctx context.Context) error {
		tick := j.config.Clock.NewTicker(renewEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C():
			}
			if _, err := leaf.Certificate(); err != nil {
				j.config.Log.Error("this node's certificate has ended and cannot be renewed: join again with a new token", "file", leaf.Path(), "error", err)
			}
		}
	})
}

// requester has certificates issued by the API server's signers.
type requester struct {
	ctx    context.Context
	api    func() (client.Transport, error)
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
	api, err := r.api()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.ctx, answerTime)
	defer cancel()
	request, err := client.Of[*certificatesv1.CertificateSigningRequest](api).Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: r.signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, r.usage},
		},
	})
	switch {
	case apierrors.IsUnauthorized(err):
		return nil, &refusal{"the server does not know this token, or it has expired: make another with `yare token create` on the server"}
	case err != nil:
		return nil, fmt.Errorf("ask for a certificate: %w", err)
	}
	certificate, err := r.answer(ctx, api, request.Name)
	if err != nil && ctx.Err() != nil && r.ctx.Err() == nil {
		return nil, &refusal{fmt.Sprintf("nobody answered the certificate request %s within %s: see `kubectl get csr`, or approve it with `kubectl certificate approve %[1]s`", request.Name, answerTime)}
	}
	return certificate, err
}

func (r *requester) answer(ctx context.Context, api client.Transport, name string) ([]byte, error) {
	var certificate []byte
	ref := resource.Ref{GroupVersionResource: certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")}
	err := until(ctx, api, ref, name, func(o client.Object) (bool, error) {
		csr, ok := o.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return false, nil
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return false, &refusal{fmt.Sprintf("the certificate was refused: %s (%s)", c.Message, c.Reason)}
			}
		}
		certificate = bytes.Clone(csr.Status.Certificate)
		return len(certificate) > 0, nil
	})
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
