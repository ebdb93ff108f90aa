/*
 * A Vulkan layer that tells what a driver makes of compute pipelines: its statistics (VK_KHR_pipeline_executable_properties), and, where the driver puts machine code in its pipeline cache, that.
 *
 *   gcc -shared -fPIC -o liblayer.so layer.c     (Debian: libvulkan-dev has the headers)
 *
 * MACHINE_CODE names the folder that it writes to: N.txt and N.cache for pipeline N of the process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

static PFN_vkGetInstanceProcAddr instance_next;
static PFN_vkGetDeviceProcAddr device_next;
static VkInstance instance;
static int has_statistics;

#define OF_DEVICE(name) ((PFN_##name)device_next(device, #name))

/* The place in the chain of a create info where the loader says which layer comes next. */
static void *link_of(const void *next, VkStructureType type) {
  const VkBaseInStructure *at = next;
  while (at != NULL && !(at->sType == type && *(const VkLayerFunction *)(at + 1) == VK_LAYER_LINK_INFO)) at = at->pNext;
  return (void *)at;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *memory, VkInstance *made) {
  VkLayerInstanceCreateInfo *link = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
  instance_next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  VkResult result = ((PFN_vkCreateInstance)instance_next(NULL, "vkCreateInstance"))(info, memory, made);
  instance = *made;
  return result;
}

static int offers(VkPhysicalDevice adapter, const char *name) {
  PFN_vkEnumerateDeviceExtensionProperties enumerate = (PFN_vkEnumerateDeviceExtensionProperties)instance_next(instance, "vkEnumerateDeviceExtensionProperties");
  uint32_t count = 0, found = 0;
  enumerate(adapter, NULL, &count, NULL);
  VkExtensionProperties *all = calloc(count, sizeof *all);
  enumerate(adapter, NULL, &count, all);
  for (uint32_t i = 0; i < count; i++) found |= strcmp(all[i].extensionName, name) == 0;
  free(all);
  return found;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice adapter, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *memory, VkDevice *made) {
  VkLayerDeviceCreateInfo *link = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
  PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  device_next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  has_statistics = offers(adapter, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  if (!has_statistics) fprintf(stderr, "the driver tells nothing of its pipelines\n");
  VkDeviceCreateInfo own = *info;
  const char **names = calloc(own.enabledExtensionCount + 1, sizeof *names);
  memcpy(names, info->ppEnabledExtensionNames, own.enabledExtensionCount * sizeof *names);
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR feature = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, (void *)own.pNext, VK_TRUE};
  if (has_statistics) {
    names[own.enabledExtensionCount++] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    own.ppEnabledExtensionNames = names;
    own.pNext = &feature;
  }
  VkResult result = ((PFN_vkCreateDevice)next(instance, "vkCreateDevice"))(adapter, &own, memory, made);
  free(names);
  return result;
}

static FILE *opened(uint32_t number, const char *ending, const char *mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%u.%s", getenv("MACHINE_CODE"), number, ending);
  return fopen(path, mode);
}

static void write_statistics(VkDevice device, VkPipeline pipeline, FILE *out) {
  VkPipelineInfoKHR whole = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, NULL, pipeline};
  uint32_t parts = 0;
  OF_DEVICE(vkGetPipelineExecutablePropertiesKHR)(device, &whole, &parts, NULL);
  for (uint32_t part = 0; part < parts; part++) {
    VkPipelineExecutableInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, NULL, pipeline, part};
    uint32_t count = 0;
    OF_DEVICE(vkGetPipelineExecutableStatisticsKHR)(device, &info, &count, NULL);
    VkPipelineExecutableStatisticKHR *all = calloc(count, sizeof *all);
    for (uint32_t i = 0; i < count; i++) all[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    OF_DEVICE(vkGetPipelineExecutableStatisticsKHR)(device, &info, &count, all);
    for (uint32_t i = 0; i < count; i++) fprintf(out, "%s=%llu\n", all[i].name, (unsigned long long)all[i].value.u64);
    free(all);
  }
}

static void write_cache(VkDevice device, VkPipelineCache cache, FILE *out) {
  size_t size = 0;
  OF_DEVICE(vkGetPipelineCacheData)(device, cache, &size, NULL);
  void *data = malloc(size);
  OF_DEVICE(vkGetPipelineCacheData)(device, cache, &size, data);
  fwrite(data, 1, size, out);
  free(data);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo *infos, const VkAllocationCallbacks *memory, VkPipeline *made) {
  static uint32_t number;
  VkResult result = VK_SUCCESS;
  for (uint32_t i = 0; i < count && result == VK_SUCCESS; i++, number++) {
    VkComputePipelineCreateInfo own = infos[i];
    if (has_statistics) own.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    VkPipelineCacheCreateInfo empty = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    OF_DEVICE(vkCreatePipelineCache)(device, &empty, memory, &cache);
    result = OF_DEVICE(vkCreateComputePipelines)(device, cache, 1, &own, memory, &made[i]);
    FILE *statistics = opened(number, "txt", "w"), *code = opened(number, "cache", "wb");
    if (statistics != NULL && has_statistics && result == VK_SUCCESS) write_statistics(device, made[i], statistics);
    if (code != NULL) write_cache(device, cache, code);
    if (statistics != NULL) fclose(statistics);
    if (code != NULL) fclose(code);
    OF_DEVICE(vkDestroyPipelineCache)(device, cache, memory);
  }
  return result;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_device(VkDevice device, const char *name) {
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)of_device;
  if (strcmp(name, "vkCreateComputePipelines") == 0) return (PFN_vkVoidFunction)create_pipelines;
  return device_next(device, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_instance(VkInstance own, const char *name) {
  if (strcmp(name, "vkGetInstanceProcAddr") == 0) return (PFN_vkVoidFunction)of_instance;
  if (strcmp(name, "vkCreateInstance") == 0) return (PFN_vkVoidFunction)create_instance;
  if (strcmp(name, "vkCreateDevice") == 0) return (PFN_vkVoidFunction)create_device;
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)of_device;
  return instance_next == NULL ? NULL : instance_next(own, name);
}

VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version) {
  version->loaderLayerInterfaceVersion = 2;
  version->pfnGetInstanceProcAddr = of_instance;
  version->pfnGetDeviceProcAddr = of_device;
  version->pfnGetPhysicalDeviceProcAddr = NULL;
  return VK_SUCCESS;
}
