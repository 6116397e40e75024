package yaretest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	regv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/freeport"
)

// WebhookServer is where the API server expects the test's webhook server, in the words of controller-runtime's webhook.Options.
type WebhookServer struct {
	Host string
	Port int
	// CertDir has tls.crt and tls.key, which the API server trusts.
	CertDir string

	authority []byte
}

// Webhooks is where to serve webhooks; the zero value unless an option asked for them. A request whose webhook is not served yet is answered by
// the webhook's failurePolicy.
func (s *Server) Webhooks() WebhookServer { return s.hooks }

// prepare makes the certificate, and finds a port.
func (w *WebhookServer) prepare(s *Server, o *settings) error {
	w.Host, w.Port = o.hookHost, o.hookPort
	if w.Port == 0 {
		var err error
		if w.Port, err = freeport.Find(w.Host); err != nil {
			return fmt.Errorf("a port for webhooks: %w", err)
		}
	}
	names, ips := []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if ip := net.ParseIP(w.Host); ip != nil {
		ips = append(ips, ip)
	} else {
		names = append(names, w.Host)
	}
	cert, key, authority, err := s.cluster.Serving(names, ips)
	if err != nil {
		return err
	}
	w.authority = authority
	if w.CertDir, err = os.MkdirTemp("", "yaretest-webhooks-"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.CertDir, "tls.crt"), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.CertDir, "tls.key"), key, 0o600)
}

func (w *WebhookServer) url(path *string) *string {
	at := ""
	if path != nil {
		at = strings.TrimPrefix(*path, "/")
	}
	url := "https://" + net.JoinHostPort(w.Host, strconv.Itoa(w.Port)) + "/" + at
	return &url
}

// redirect points a webhook of a Service at the test's server. One that has a URL already knows where it is.
func (w *WebhookServer) redirect(c *regv1.WebhookClientConfig) {
	if c.Service != nil {
		*c = regv1.WebhookClientConfig{URL: w.url(c.Service.Path), CABundle: w.authority}
	}
}

func (w *WebhookServer) convert(crd *apiextensionsv1.CustomResourceDefinition, force bool) {
	path := "/convert"
	asked := crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter && crd.Spec.Conversion.Webhook != nil
	reviews := []string{"v1"}
	if asked {
		c := crd.Spec.Conversion.Webhook
		if c.ClientConfig != nil && c.ClientConfig.Service == nil {
			return
		}
		if c.ClientConfig != nil && c.ClientConfig.Service.Path != nil {
			path = *c.ClientConfig.Service.Path
		}
		if len(c.ConversionReviewVersions) > 0 {
			reviews = c.ConversionReviewVersions
		}
	}
	if asked || force {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: w.url(&path), CABundle: w.authority}, ConversionReviewVersions: reviews,
		}}
	}
}

// installWebhooks creates the configurations in files and returns when they are called.
func (s *Server) installWebhooks(ctx context.Context, paths []string) error {
	manifests, err := read(paths)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range manifests {
		if m.APIVersion != regv1.SchemeGroupVersion.String() {
			continue
		}
		switch m.Kind {
		case "MutatingWebhookConfiguration":
			c := &regv1.MutatingWebhookConfiguration{}
			if err := m.decode(c); err != nil {
				return err
			}
			for i := range c.Webhooks {
				s.hooks.redirect(&c.Webhooks[i].ClientConfig)
			}
			if err := create(ctx, s, c); err != nil {
				return fmt.Errorf("%s: %w", m.from, err)
			}
			if len(c.Webhooks) > 0 {
				names = append(names, c.Name)
			}
		case "ValidatingWebhookConfiguration":
			c := &regv1.ValidatingWebhookConfiguration{}
			if err := m.decode(c); err != nil {
				return err
			}
			for i := range c.Webhooks {
				s.hooks.redirect(&c.Webhooks[i].ClientConfig)
			}
			if err := create(ctx, s, c); err != nil {
				return fmt.Errorf("%s: %w", m.from, err)
			}
			if len(c.Webhooks) > 0 {
				names = append(names, c.Name)
			}
		}
	}
	return s.awaitWebhooks(ctx, names)
}

func create[T client.Object](ctx context.Context, s *Server, obj T) error {
	_, err := client.Of[T](s.cluster.Local()).Create(ctx, obj)
	return err
}

// awaitWebhooks asks again and again: the server tells nobody when a configuration takes effect, which is a hop in memory after it was written.
func (s *Server) awaitWebhooks(ctx context.Context, names []string) error {
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for _, name := range names {
		for !s.cluster.Calls(name) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("webhooks %s: %w", name, ctx.Err())
			}
		}
	}
	return nil
}
