package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	regv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Resolver finds where a Service's port is answered: addresses as host:port, the best first.
type Resolver func(ctx context.Context, namespace, name string, port int32) ([]string, error)

// maxAnswer bounds a webhook's answer: a patch may be about as large as the largest object (3 MiB), in base64 inside JSON.
const maxAnswer = 8 << 20

// client calls one webhook.
type client struct {
	url       *url.URL
	http      *http.Client
	transport *http.Transport
}

func newClient(c regv1.WebhookClientConfig, resolve Resolver, credentials func(host string) (*rest.Config, error)) (*client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CABundle) {
			return nil, errors.New("unable to load root certificates: the caBundle holds no certificate in PEM form")
		}
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		TLSClientConfig: config, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 25, MaxResponseHeaderBytes: 64 << 10,
		// HTTP/1.1 only: over one HTTP/2 connection all calls would go to one of a Service's endpoints.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	at, err := target(c)
	if err != nil {
		return nil, err
	}
	if s := c.Service; s != nil {
		config.ServerName = s.Name + "." + s.Namespace + ".svc"
		port := ptr.Deref(s.Port, 443)
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			addresses, err := resolve(ctx, s.Namespace, s.Name, port)
			if err != nil {
				return nil, err
			}
			return dialAny(ctx, dialer, network, addresses)
		}
	}
	caller := http.RoundTripper(transport)
	if credentials != nil {
		if caller, err = introduce(transport, at, credentials); err != nil {
			return nil, err
		}
	}
	return &client{url: at, transport: transport, http: &http.Client{Transport: caller,
		// A redirect would send what the webhook is told to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// introduce makes calls say who makes them: by a client certificate, or by what a header carries.
func introduce(transport *http.Transport, at *url.URL, credentials func(host string) (*rest.Config, error)) (http.RoundTripper, error) {
	host := at.Host
	if at.Port() == "" {
		host = net.JoinHostPort(at.Hostname(), "443")
	}
	config, err := credentials(host)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w", host, err)
	}
	secret, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w", host, err)
	}
	if secret != nil {
		transport.TLSClientConfig.Certificates, transport.TLSClientConfig.GetClientCertificate = secret.Certificates, secret.GetClientCertificate
	}
	return rest.HTTPWrappersForConfig(config, transport)
}

func target(c regv1.WebhookClientConfig) (*url.URL, error) {
	switch {
	case c.Service != nil:
		host := net.JoinHostPort(c.Service.Name+"."+c.Service.Namespace+".svc", strconv.Itoa(int(ptr.Deref(c.Service.Port, 443))))
		return &url.URL{Scheme: "https", Host: host, Path: path.Join("/", ptr.Deref(c.Service.Path, ""))}, nil
	case c.URL != nil:
		u, err := url.Parse(*c.URL)
		if err != nil {
			return nil, fmt.Errorf("Unparsable URL: %w", err)
		}
		u.Path = path.Join("/", u.Path) // as Kubernetes asks: whoever writes a slash too many is called all the same
		return u, nil
	}
	return nil, errors.New("webhook configuration must have either service or URL")
}

// dialAny connects to the first address that answers.
func dialAny(ctx context.Context, dialer *net.Dialer, network string, addresses []string) (net.Conn, error) {
	var errs []error
	for _, address := range addresses {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, errors.New("no address to connect to")
	}
	return nil, errors.Join(errs...)
}

// post sends a review and returns the answer's body. The webhook is told how long it has, in whole seconds.
func (c *client) post(ctx context.Context, timeout time.Duration, body []byte) ([]byte, error) {
	u := *c.url
	u.RawQuery = "timeout=" + timeout.String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	req.Header.Set("User-Agent", "kube-apiserver-admission")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(answer) > maxAnswer {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 206 {
		return nil, apierrors.NewGenericServerResponse(resp.StatusCode, "POST", schema.GroupResource{}, "", string(answer), 0, true)
	}
	return answer, nil
}

func (c *client) close() { c.transport.CloseIdleConnections() }
