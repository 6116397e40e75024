package encryption

import (
	"context"
	"crypto/aes"
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
)

// Prefixes of values, from etcd as Kubernetes writes it.
const (
	prefixCBC       = sealedPrefix + "aescbc:v1:"
	prefixGCM       = sealedPrefix + "aesgcm:v1:"
	prefixSecretbox = sealedPrefix + "secretbox:v1:"
	prefixKMS       = sealedPrefix + "kms:v2:"
)

// parse reads a file strictly and checks it by Kubernetes' own rules.
func parse(content []byte, reload bool) (*apiserver.EncryptionConfiguration, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	obj, gvk, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder().Decode(content, nil, nil)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.EncryptionConfiguration)
	if !ok {
		return nil, fmt.Errorf("it holds %s: an EncryptionConfiguration of apiserver.config.k8s.io/v1 is wanted", gvk)
	}
	return config, validation.ValidateEncryptionConfiguration(config, reload).ToAggregate()
}

// fill makes the rings of a file. Entries for the same resource add up, in their order.
func (e *Encryption) fill(ctx context.Context, k *keyrings, content []byte) error {
	config, err := parse(content, e.cfg.Reload)
	if err != nil {
		return err
	}
	for i, rule := range config.Resources {
		providers, err := e.providers(ctx, k, rule.Providers)
		if err != nil {
			return fmt.Errorf("resources[%d].%w", i, err)
		}
		for _, name := range rule.Resources {
			gr := schema.ParseGroupResource(name)
			if masked := k.mask(gr); masked != "" {
				return fmt.Errorf("resources[%d].resources: resource %q is masked by earlier rule %q", i, name, masked)
			}
			ring := k.rings[gr]
			if ring == nil {
				ring = &keyring{}
				k.rings[gr] = ring
			}
			ring.providers = append(ring.providers, providers...)
		}
	}
	return nil
}

// mask names the earlier, wider rule that would take all of a resource's objects.
func (k *keyrings) mask(gr schema.GroupResource) string {
	if k.rings[schema.GroupResource{Group: gr.Group, Resource: "*"}] != nil {
		return "*." + gr.Group
	}
	if k.rings[schema.GroupResource{Group: "*", Resource: "*"}] != nil {
		return "*.*"
	}
	return ""
}

func (e *Encryption) providers(ctx context.Context, k *keyrings, configs []apiserver.ProviderConfiguration) ([]provider, error) {
	var out []provider
	for i := range configs {
		more, err := e.provider(ctx, k, &configs[i])
		if err != nil {
			return nil, fmt.Errorf("providers[%d].%w", i, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

func (e *Encryption) provider(ctx context.Context, k *keyrings, c *apiserver.ProviderConfiguration) ([]provider, error) {
	switch {
	case c.AESCBC != nil:
		return keys(prefixCBC, c.AESCBC.Keys, "aescbc", cbc)
	case c.AESGCM != nil:
		return keys(prefixGCM, c.AESGCM.Keys, "aesgcm", gcm)
	case c.Secretbox != nil:
		return keys(prefixSecretbox, c.Secretbox.Keys, "secretbox", box)
	case c.KMS != nil:
		service, err := e.service(ctx, k, c.KMS)
		if err != nil {
			return nil, fmt.Errorf("kms: %w", err)
		}
		return []provider{service}, nil
	case c.Identity != nil:
		return []provider{plain{}}, nil
	}
	return nil, errors.New("it names no provider: identity, aescbc, aesgcm, secretbox and kms are known")
}

func keys(prefix string, configs []apiserver.Key, name string, cipher func([]byte) (value.Transformer, error)) ([]provider, error) {
	var out []provider
	for i, c := range configs {
		secret, err := base64.StdEncoding.DecodeString(c.Secret)
		var t value.Transformer
		if err == nil {
			t, err = cipher(secret)
		}
		if err != nil {
			return nil, fmt.Errorf("%s.keys[%d]: %w", name, i, err)
		}
		out = append(out, newKey(prefix, c.Name, secret, t))
	}
	return out, nil
}

func cbc(secret []byte) (value.Transformer, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return aestransformer.NewCBCTransformer(block), nil
}

func gcm(secret []byte) (value.Transformer, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return aestransformer.NewGCMTransformer(block)
}

func box(secret []byte) (value.Transformer, error) {
	if len(secret) != 32 {
		return nil, fmt.Errorf("a key of %d bytes: secretbox takes 32", len(secret))
	}
	return secretbox.NewSecretboxTransformer([32]byte(secret)), nil
}
