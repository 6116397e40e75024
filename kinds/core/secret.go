package core

import (
	"crypto/tls"
	"encoding/json"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.Secret]{
	Names:    kind.Names{Plural: "secrets"},
	Default:  defaultSecret,
	Validate: validateSecret,
	Warn: func(s, _ *corev1.Secret) []string {
		if s.Type != corev1.SecretTypeTLS {
			return nil
		}
		if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
			return []string{err.Error()}
		}
		return nil
	},
	Columns: []kind.Column[corev1.Secret]{
		{Name: "Type", Description: "What the secret is for.", Value: func(s *corev1.Secret, _ time.Time) any { return string(s.Type) }},
		{Name: "Data", Description: "Number of keys.", Value: func(s *corev1.Secret, _ time.Time) any { return int64(len(s.Data)) }},
	},
	Fields: map[string]func(*corev1.Secret) string{"type": func(s *corev1.Secret) string { return string(s.Type) }},
})

// defaultSecret also moves stringData, which is only a way to write, into data.
func defaultSecret(s *corev1.Secret) {
	defaultTo(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func validateSecret(s, old *corev1.Secret) field.ErrorList {
	var p problems
	path, size := field.NewPath("data"), 0
	for key, value := range s.Data {
		p.each(path.Key(key), key, validation.IsConfigMapKey(key))
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		p.add(field.TooLong(path, "", corev1.MaxSecretSize))
	}
	checkSecretType(&p, s, path)
	if old == nil {
		return p.list
	}
	if s.Type != old.Type {
		p.invalid(field.NewPath("type"), s.Type, isImmutable)
	}
	if isTrueValue(old.Immutable) {
		checkFrozen(&p, isTrueValue(s.Immutable), map[string]bool{"data": reflect.DeepEqual(s.Data, old.Data)})
	}
	return p.list
}

// checkSecretType checks that a secret of a known type has what its users look for.
func checkSecretType(p *problems, s *corev1.Secret, path *field.Path) {
	has := func(key string) bool { _, there := s.Data[key]; return there }
	needs := func(key string) bool {
		if !has(key) {
			p.required(path.Key(key), "")
		}
		return has(key)
	}
	isJSON := func(key string) {
		if !needs(key) {
			return
		}
		if err := json.Unmarshal(s.Data[key], &map[string]any{}); err != nil {
			p.invalid(path.Key(key), "<secret contents redacted>", err.Error())
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			p.required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")
		}
	case corev1.SecretTypeDockercfg:
		isJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		isJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		if !has(corev1.BasicAuthUsernameKey) && !has(corev1.BasicAuthPasswordKey) {
			needs(corev1.BasicAuthUsernameKey)
			needs(corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			p.required(path.Key(corev1.SSHAuthPrivateKey), "")
		}
	case corev1.SecretTypeTLS:
		needs(corev1.TLSCertKey)
		needs(corev1.TLSPrivateKeyKey)
	}
}
