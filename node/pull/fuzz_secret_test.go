package pull

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzSecret reads the pull secrets of a pod, which anybody may write who may run it: the credentials of one registry go to no other.
func FuzzSecret(f *testing.F) {
	for _, s := range []string{`{"auths":{"registry.example.com":{"auth":"dTpw"}}}`, `{"auths":{"*.example.com/a":{"username":"u","password":"p"}}}`, `{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw=="}}}`, `{"registry.example.com":{"auth":"%%"}}`, `{"auths":{"":{"auth":"dTpw"},"*":{"auth":"dTpw"},"[":{}}}`, `{"auths":null}`, `[]`} {
		f.Add([]byte(s), "registry.example.com/a/b", true)
		f.Add([]byte(s), "docker.io/library/a", false)
	}
	f.Fuzz(func(t *testing.T, data []byte, image string, config bool) {
		s := &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: data}}
		if config {
			s = &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: data}}
		}
		auths, err := parseSecret(s)
		if err != nil {
			return
		}
		for pattern, auth := range auths {
			_, _ = convert(auth)
			if fits(normal(pattern), "registry.example.com/a") && fits(normal(pattern), "other.org:5000/a") {
				t.Errorf("%q fits two registries", pattern)
			}
			fits(normal(pattern), image)
		}
	})
}
