package volume

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/downward"
)

func (j *job) downward(name string, s *corev1.DownwardAPIVolumeSource) (mounted, error) {
	p := payload{}
	if err := j.addDownward(p, s.Items, s.DefaultMode); err != nil {
		return mounted{}, err
	}
	dir := j.dir("downward-api", name)
	return mounted{path: dir, readOnly: true}, j.write(dir, p)
}

func (j *job) addDownward(p payload, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	facts := j.cfg.Facts(j.pod)
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = downward.Field(j.pod, item.FieldRef.FieldPath, facts)
		case item.ResourceFieldRef != nil:
			value, err = downward.Resource(j.pod, nil, item.ResourceFieldRef, facts)
		default:
			err = fmt.Errorf("downwardAPI item %q has neither fieldRef nor resourceFieldRef", item.Path)
		}
		if err != nil {
			return err
		}
		if err := p.add(item.Path, []byte(value), item.Mode, mode, nil); err != nil {
			return err
		}
	}
	return nil
}

// projected puts several sources into one volume. It is kept in memory, as one of them may be a secret.
func (j *job) projected(name string, s *corev1.ProjectedVolumeSource) (mounted, error) {
	p := payload{}
	for i := range s.Sources {
		if err := j.project(p, &s.Sources[i], s.DefaultMode); err != nil {
			return mounted{}, err
		}
	}
	dir, err := j.secretDir("projected", name)
	if err != nil {
		return mounted{}, err
	}
	return mounted{path: dir, readOnly: true}, j.write(dir, p)
}

func (j *job) project(p payload, s *corev1.VolumeProjection, mode *int32) error {
	switch {
	case s.ConfigMap != nil:
		return j.addConfigMap(p, s.ConfigMap.Name, s.ConfigMap.Items, mode, s.ConfigMap.Optional)
	case s.Secret != nil:
		return j.addSecret(p, s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return j.addDownward(p, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		return j.addToken(p, s.ServiceAccountToken, mode)
	case s.ClusterTrustBundle != nil:
		return j.addTrustBundle(p, s.ClusterTrustBundle, mode)
	case s.PodCertificate != nil:
		return fmt.Errorf("this node does not support podCertificate projections")
	}
	return fmt.Errorf("a projected source without content")
}

// addToken adds a service account token. Its file is readable for all, unless the pod says who its user or group is.
func (j *job) addToken(p payload, s *corev1.ServiceAccountTokenProjection, mode *int32) error {
	token, renew, err := j.tokens.get(j.ctx, j.pod, s)
	if err != nil {
		return fmt.Errorf("failed to fetch token: %w", err)
	}
	j.renewAt(renew)
	user := onlyUser(j.pod)
	m := int32(0o644)
	if mode != nil {
		m = *mode
	}
	if j.fsGroup() != nil || user != nil {
		m = 0o600
	}
	return p.add(s.Path, []byte(token), &m, nil, user)
}

func (j *job) renewAt(t time.Time) {
	if !t.IsZero() && (j.refresh.IsZero() || t.Before(j.refresh)) {
		j.refresh = t
	}
}
