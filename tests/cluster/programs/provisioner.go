package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

const provisionerName = "mooring.test/local"

// provisionerCommand answers each claim of a StorageClass whose provisioner is
// mooring.test/local with a directory on the node, as a "local" volume (which,
// unlike hostPath, honours fsGroup), and removes it when the claim is gone.
func provisionerCommand() *cobra.Command {
	var kubeconfig, dir, node string
	cmd := &cobra.Command{Use: "provisioner", RunE: func(*cobra.Command, []string) error {
		rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(rest)
		if err != nil {
			return err
		}
		f := informers.NewSharedInformerFactory(client, 30*time.Second)
		pvc := func(obj any) {
			if c := obj.(*v1.PersistentVolumeClaim); c.Spec.VolumeName == "" && c.Annotations["volume.kubernetes.io/storage-provisioner"] == provisionerName {
				report(provision(client, c, dir, node))
			}
		}
		pv := func(obj any) {
			if p := obj.(*v1.PersistentVolume); p.Status.Phase == v1.VolumeReleased && p.Annotations["pv.kubernetes.io/provisioned-by"] == provisionerName {
				report(os.RemoveAll(filepath.Join(dir, p.Name)))
				report(client.CoreV1().PersistentVolumes().Delete(context.Background(), p.Name, metav1.DeleteOptions{}))
			}
		}
		_, _ = f.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: pvc, UpdateFunc: func(_, o any) { pvc(o) }})
		_, _ = f.Core().V1().PersistentVolumes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: pv, UpdateFunc: func(_, o any) { pv(o) }})
		f.Start(nil)
		select {}
	}}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file")
	cmd.Flags().StringVar(&dir, "dir", "", "folder to make volumes in")
	cmd.Flags().StringVar(&node, "node", "", "node name")
	return cmd
}

func provision(client kubernetes.Interface, c *v1.PersistentVolumeClaim, dir, node string) error {
	name := "pvc-" + string(c.UID)
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		return err
	}
	ref, err := reference.GetReference(legacyscheme.Scheme, c)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().PersistentVolumes().Create(context.Background(), &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisionerName}},
		Spec: v1.PersistentVolumeSpec{
			StorageClassName:              *c.Spec.StorageClassName,
			AccessModes:                   c.Spec.AccessModes,
			Capacity:                      c.Spec.Resources.Requests,
			ClaimRef:                      ref,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: filepath.Join(dir, name)}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}

func report(err error) {
	if err != nil {
		klog.ErrorS(err, "provisioner")
	}
}
