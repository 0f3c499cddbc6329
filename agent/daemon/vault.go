package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/agent/secrets"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// vault stores the agent's Secret in its namespace.
type vault struct {
	client    dynamic.ResourceInterface
	namespace string
}

func newVault(client dynamic.Interface, namespace string) *vault {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	return &vault{client: client.Resource(gvr).Namespace(namespace), namespace: namespace}
}

// Read returns the Secret's data.
func (v *vault) Read(ctx context.Context) (map[string][]byte, error) {
	o, err := v.client.Get(ctx, inventory.SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fault.New(fault.Missing, "the agent has no Secret yet")
	}
	if err != nil {
		return nil, v.explain(err, "read")
	}
	held, _, _ := unstructured.NestedMap(o.Object, "data")
	data := make(map[string][]byte, len(held))
	for k, e := range held {
		text, _ := e.(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fault.New(fault.Invalid, "entry %q of Secret %s/%s is not base64", k, v.namespace, inventory.SecretName)
		}
		data[k] = raw
	}
	return data, nil
}

// Write replaces the Secret's data.
func (v *vault) Write(ctx context.Context, data map[string][]byte) error {
	entries := make(map[string]any, len(data))
	for k, raw := range data {
		entries[k] = base64.StdEncoding.EncodeToString(raw)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": map[string]any{"name": inventory.SecretName, "namespace": v.namespace},
		"data":     entries,
	}}
	_, err := v.client.Update(ctx, o, metav1.UpdateOptions{FieldManager: "capstan-agent"})
	if apierrors.IsNotFound(err) {
		_, err = v.client.Create(ctx, o, metav1.CreateOptions{FieldManager: "capstan-agent"})
	}
	return v.explain(err, "write")
}

// explain describes an error without the Secret's content, which an API server
// may quote.
func (v *vault) explain(err error, doing string) error {
	name := "Secret " + v.namespace + "/" + inventory.SecretName
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fault.With(fault.New(fault.Denied, "the agent may not %s it", doing), name, "give the agent's ServiceAccount get, create and update on Secrets of its own namespace")
	case apierrors.IsNotFound(err):
		return fault.With(fault.New(fault.Missing, "its namespace does not exist"), name, "create the namespace first")
	}
	return fault.With(fault.New(fault.Offline, "the API server does not let the agent %s it (%s)", doing, apierrors.ReasonForError(err)), name, "")
}

// identities stores the link's identity in the agent's Secret.
type identities struct{ secret *inventory.Secret }

// Load returns the identity.
func (s identities) Load(context.Context) (link.Identity, error) {
	raw := s.secret.Identity()
	if len(raw) == 0 {
		return link.Identity{}, fault.New(fault.Missing, "the agent has no identity yet")
	}
	var id link.Identity
	if err := json.Unmarshal(raw, &id); err != nil {
		return link.Identity{}, fault.New(fault.Invalid, "the agent's stored identity is damaged; enrol it again with a new join token")
	}
	return id, nil
}

// Save replaces the identity.
func (s identities) Save(ctx context.Context, id link.Identity) error {
	raw, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("write the agent's identity: %w", err)
	}
	return s.secret.SetIdentity(ctx, raw)
}

// clusterSecrets reads Secrets of the cluster as the agent.
func clusterSecrets(client dynamic.Interface) secrets.ReadSecret {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	return func(ctx context.Context, namespace, name string) (*manifest.Object, error) {
		o, err := client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		object := "Secret " + namespace + "/" + name
		switch {
		case err == nil:
			return o, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case apierrors.IsForbidden(err):
			return nil, fault.With(fault.New(fault.Denied, "the agent may not read it"), object, "grant the agent get on this Secret; its chart does, for those named in secrets.sops.age")
		}
		return nil, fault.With(fault.New(fault.Offline, "the API server does not let the agent read it (%s)", apierrors.ReasonForError(err)), object, "")
	}
}
