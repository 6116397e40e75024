package server

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/admission"
)

// choice is which admission plugins run.
func (c *Config) choice() admission.Choice {
	return admission.Choice{Enable: c.EnableAdmissionPlugins, Disable: c.DisableAdmissionPlugins}
}

// plugins builds the admission plugins that are wanted.
func (p *plane) plugins() ([]kind.Mutator, []kind.Validator, error) {
	return admission.Build(p.admission())
}

func (p *plane) admission() admission.Config {
	c := p.config
	return admission.Config{Clock: c.Clock, Quota: p.quota, Choice: c.choice(), File: c.AdmissionConfigFile,
		Kinds:     func() []*kind.Kind { kinds, _ := p.kinds(); return kinds },
		Provision: p.provision, NotReadySeconds: c.NotReadySeconds, UnreachableSeconds: c.UnreachableSeconds}
}

// provision makes a namespace, as the server itself.
func (p *plane) provision(ctx context.Context, name string) error {
	ref := resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces")}
	_, err := p.gate.Local(superuser).Create(ctx, ref, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// webhookCredentials says how webhooks are told who calls, by the configuration of the plugins that call them. Nil: they are not.
func (p *plane) webhookCredentials() (func(measure.Kind, string) (*rest.Config, error), error) {
	paths, err := admission.WebhookKubeconfigs(p.admission())
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	by := map[measure.Kind]webhook.AuthenticationInfoResolver{}
	for kind, name := range map[measure.Kind]string{measure.Mutate: "MutatingAdmissionWebhook", measure.Validate: "ValidatingAdmissionWebhook"} {
		if by[kind], err = webhook.NewDefaultAuthenticationInfoResolver(paths[name]); err != nil {
			return nil, fmt.Errorf("--admission-control-config-file: %s: %w", name, err)
		}
	}
	return func(kind measure.Kind, host string) (*rest.Config, error) { return by[kind].ClientConfigFor(host) }, nil
}
