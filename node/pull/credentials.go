package pull

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"sort"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dockerConfig is the content of a dockerconfigjson secret.
type dockerConfig struct {
	Auths map[string]dockerAuth `json:"auths"`
}

type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// credentials answers what to try for an image: the credentials of the pod's pull secrets that fit, the closest first, or, if there are none, one
// anonymous attempt (nil). A secret that can't be read is told about and passed over.
func (p *Puller) credentials(ctx context.Context, pod *corev1.Pod, container, image string) ([]*runtimeapi.AuthConfig, error) {
	ref, err := name.ParseReference(image, name.WeakValidation)
	if err != nil {
		return nil, err
	}
	target := ref.Context().RegistryStr() + "/" + ref.Context().RepositoryStr()
	var found []match
	var unreadable []string
	for _, r := range pod.Spec.ImagePullSecrets {
		if r.Name == "" {
			continue
		}
		matches, err := p.fromSecret(ctx, pod.Namespace, r.Name, target)
		if err != nil {
			unreadable = append(unreadable, r.Name)
			continue
		}
		found = append(found, matches...)
	}
	if len(unreadable) > 0 {
		p.cfg.Event(pod, container, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(unreadable, ", ")))
	}
	if len(found) == 0 {
		return []*runtimeapi.AuthConfig{nil}, nil
	}
	sort.SliceStable(found, func(i, j int) bool { return len(found[i].pattern) > len(found[j].pattern) })
	out := make([]*runtimeapi.AuthConfig, len(found))
	for i, m := range found {
		out[i] = m.auth
	}
	return out, nil
}

type match struct {
	pattern string
	auth    *runtimeapi.AuthConfig
}

func (p *Puller) fromSecret(ctx context.Context, namespace, secret, target string) ([]match, error) {
	if p.cfg.Secret == nil {
		return nil, fmt.Errorf("this node reads no secrets")
	}
	s, err := p.cfg.Secret(ctx, namespace, secret)
	if err != nil {
		return nil, err
	}
	auths, err := parseSecret(s)
	if err != nil {
		return nil, err
	}
	var out []match
	for pattern, a := range auths {
		if !fits(pattern, target) {
			continue
		}
		auth, err := convert(a)
		if err != nil {
			return nil, fmt.Errorf("secret %s: credentials for %s: %w", secret, pattern, err)
		}
		out = append(out, match{normal(pattern), auth})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].pattern < out[j].pattern })
	return out, nil
}

func parseSecret(s *corev1.Secret) (map[string]dockerAuth, error) {
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		var c dockerConfig
		if err := json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &c); err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Name, err)
		}
		return c.Auths, nil
	case corev1.SecretTypeDockercfg:
		var auths map[string]dockerAuth
		if err := json.Unmarshal(s.Data[corev1.DockerConfigKey], &auths); err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Name, err)
		}
		return auths, nil
	}
	return nil, fmt.Errorf("secret %s has type %q; a pull secret has %s or %s", s.Name, s.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
}

// convert leaves the server's address out: the key was matched to the image already, and the runtime would compare the address with the host that
// it asks, which is another for Docker Hub and for mirrors.
func convert(a dockerAuth) (*runtimeapi.AuthConfig, error) {
	out := &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
	if a.Auth == "" || a.Username != "" {
		return out, nil
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(a.Auth, "="))
	if err != nil {
		return nil, fmt.Errorf("auth is not base64")
	}
	user, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return nil, fmt.Errorf("auth is not base64 of user:password")
	}
	out.Username, out.Password = user, password
	return out, nil
}

// normal is a registry key without scheme and trailing parts that only Docker Hub's keys have.
func normal(pattern string) string {
	if u, err := url.Parse(pattern); err == nil && u.Host != "" {
		pattern = u.Host + u.Path
	}
	pattern = strings.TrimSuffix(pattern, "/")
	for _, suffix := range []string{"/v1", "/v2"} {
		pattern = strings.TrimSuffix(pattern, suffix)
	}
	host, rest, _ := strings.Cut(pattern, "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		return strings.TrimSuffix("index.docker.io/"+rest, "/")
	}
	return pattern
}

// fits answers whether a registry key covers an image: the same host, where * stands for one part of the name, and the same beginning of the path.
// Source: Kubernetes documentation, "Interpretation of config.json".
func fits(pattern, target string) bool {
	wantHost, wantPath, _ := strings.Cut(normal(pattern), "/")
	haveHost, havePath, _ := strings.Cut(target, "/")
	want, have := strings.Split(wantHost, "."), strings.Split(haveHost, ".")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], have[i]); err != nil || !ok {
			return false
		}
	}
	return wantPath == "" || havePath == wantPath || strings.HasPrefix(havePath, strings.TrimSuffix(wantPath, "/")+"/")
}
